//! SHA-256 as the hex text in which it is stored and compared.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// The digest of `data`.
pub(crate) fn digest(data: &[u8]) -> String {
    hex(&Sha256::digest(data))
}

/// Bytes in lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
