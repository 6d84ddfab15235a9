//! Series of the certificates that the publisher uses itself, where TLS is on.

use tapecast_control::{CertificateEnds, TlsIdentity};
use tapecast_telemetry::families::{Families, Named};

const EXPIRY: Named = Named(
    "tapecast_certificate_expiry_timestamp_seconds",
    "When the certificate that the next connection is to use ends, Unix time: of the publisher \
     (server), of the authority of its clients (client_ca), of this endpoint (metrics). Of several \
     in one file, those between it and its authority included, the first to end. Follows the \
     files.",
);

/// Whose certificates are told. A clone of an identity is the same one.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    /// Of the control plane.
    pub server: Option<TlsIdentity>,
    /// Of the metrics endpoint.
    pub metrics: Option<TlsIdentity>,
}

impl Certificates {
    pub(super) fn collect(&self, out: &mut Families) {
        let ends = |identity: &Option<TlsIdentity>| {
            identity.as_ref().map_or_else(CertificateEnds::default, TlsIdentity::ends)
        };
        let (server, metrics) = (ends(&self.server), ends(&self.metrics));
        for (which, end) in [
            ("server", server.certificate),
            ("client_ca", server.client_ca),
            ("metrics", metrics.certificate),
        ] {
            if let Some(end) = end {
                out.gauge_of(EXPIRY, &[("certificate", which)], end as f64);
            }
        }
    }
}
