# Written by scripts/stubs.py from the blocking classes; not to be edited.

from holdfast.replicas.replica_sync import ReplicaStatus as ReplicaStatus
from holdfast.replicas.replica_sync import SyncedReplica as SyncedReplica
from holdfast.replicas.replica_sync import SyncReport as SyncReport
from holdfast.replicas.replicas import Replicas as Replicas
from holdfast.replicas.replicas import promote_replica as promote_replica
