"""The configuration of the source documents, word for word: one place for all who set it up."""

from __future__ import annotations

DOCUMENT = """
state_management:
  agent_id: "ai.kai.assistant.general"

  storage:
    primary:
      type: "postgresql"
      connection: "postgresql://user:pass@localhost:5432/kai_states"
      pool_size: 20
      timeout: 30000
    backup:
      type: "s3"
      bucket: "kai-agent-states"
      region: "us-west-2"
      encryption: true
    cache:
      type: "redis"
      connection: "redis://localhost:6379/2"
      ttl: "1h"

  checkpointing:
    policies:
      - name: "time_based"
        conditions:
          - type: "time_interval"
            threshold: 300000  # 5 minutes
            metric: "time_since_last_checkpoint"
            operator: "greater_than"
        frequency:
          interval: 300000
          jitter: 30000
        retention:
          max_age: "7d"
          max_count: 100
        compression:
          enabled: true
          algorithm: "lz4"
        encryption:
          enabled: true
          algorithm: "AES-256-GCM"
        priority: "medium"

      - name: "state_change"
        conditions:
          - type: "state_change"
            threshold: 0.1  # 10% change
            metric: "state_change_ratio"
            operator: "greater_than"
        retention:
          max_age: "30d"
          max_count: 50
        priority: "high"

  recovery:
    procedures:
      - name: "standard_recovery"
        triggers:
          - type: "agent_crash"
          - type: "corruption_detected"
        steps:
          - type: "backup_current"
            timeout: 30000
            critical: true
          - type: "locate_checkpoint"
            timeout: 60000
            critical: true
          - type: "verify_integrity"
            timeout: 30000
            critical: true
          - type: "restore_state"
            timeout: 120000
            critical: true
          - type: "validate_state"
            timeout: 60000
            critical: true
        timeout: 300000
        retries: 3

  synchronization:
    enabled: true
    strategy: "eventual_consistency"
    conflict_resolution: "timestamp_wins"
    replication_factor: 3
    consistency_level: "eventual"

  integrity:
    verification_level: "high"
    tamper_detection: true
    signature_verification: true
    hash_algorithm: "SHA-256"

  monitoring:
    metrics_enabled: true
    audit_logging: true
    performance_tracking: true
    alert_thresholds:
      checkpoint_failure_rate: 0.05
      recovery_time: 300000
      sync_lag: 60000
"""
