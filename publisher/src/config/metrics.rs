//! The section for the metrics endpoint.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::choice::TlsMode;
use super::network::TlsConfig;
use super::value::Whole;

/// `[metrics]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricsConfig {
    /// Where figures are served over HTTP; unset for nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    /// Whether that is protected by TLS.
    pub tls: TlsMode,
    /// Its certificate, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its private key, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The authority of those who may ask, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// Seconds that the series of a subscriber stay after it has left.
    pub departed_s: Whole<0, 86_400>,
    /// Error of a clock offset, in microseconds, beyond which one-way figures are not to be relied
    /// on.
    pub clock_error_max_us: Whole<1, 1_000_000>,
}

impl MetricsConfig {
    /// The files for TLS and whether it is on, as [`TlsConfig`] has them.
    #[must_use]
    pub fn protection(&self) -> TlsConfig {
        TlsConfig {
            mode: self.tls,
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            client_ca: self.client_ca.clone(),
        }
    }
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self {
            address: None,
            tls: TlsMode::Auto,
            certificate: None,
            key: None,
            client_ca: None,
            departed_s: Whole::new(300),
            clock_error_max_us: Whole::new(50),
        }
    }
}
