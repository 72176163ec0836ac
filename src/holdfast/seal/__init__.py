"""Bytes at rest: what turns a value into a sealed record and back, or into an error.

Glossary of this layer:

- **Value**: what a caller gives. **Plain form**: the same as None, bool, int, float, str,
  bytes, list, dict, `Typed` and extension parts only (`codec`).
- **Typed**: the plain form of an object of a registered class: name, version, fields. Only
  classes in a **registry** are ever built, and nothing is imported to build one (`registry`).
- **Squeeze / expand**: compression of one record, never across records (`compress`).
- **Commitment**: the 32-byte hash of content under a **domain**; SHA-256 in a plain store,
  HMAC-SHA-256 under the scope's commitment key in an encrypted one (`sealer`).
- **Seal**: header, nonce, ciphertext and tag of one record, bound to its **place** (the
  associated data, made by the store). **Epoch**: the number of a data key.
  **Writer**: 16 random bytes from which a writer's own key is derived (`sealer`).
- **Key source**: where the master key comes from: file, environment or passphrase (`keys`).
- **Ring**: the wrapped keys, in a storage of their own (`ring`). **Generation**: the number
  of the master under which they are wrapped.
- **Signer**: the Ed25519 key that signs checkpoints and witnesses. **Identity**: the text by
  which a verifier pins a store and its signer (`signer`).

Import the modules themselves; this package re-exports nothing.
"""
