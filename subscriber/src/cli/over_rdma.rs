//! Options of sessions over RDMA.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use tapecast_control::client::TcpTarget;
use tapecast_subscriber::{RdmaChoices, SubscriberBuilder, Target, TlsChoices};

use super::misuse::Misuse;

/// How to attach to a publisher on another machine.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Over RDMA")]
pub(crate) struct RdmaArgs {
    /// Publisher to attach to over RDMA: its TCP address, `[..]:PORT` for IPv6 [env:
    /// TAPECAST_CONNECT]
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub connect: Option<String>,

    /// Certificates (PEM) of the authority that the publisher's certificate must come from
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,

    /// This subscriber's certificate (PEM); TLS is required unless the address is a loopback one
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,

    /// Key of that certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// Name that the publisher's certificate must bear [default: the host connected to]
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,

    /// RDMA device to use, as `ibv_devices` prints it [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub rdma_device: Option<String>,

    /// IP address of the network interface to use, on this machine [default: the device's]
    #[arg(long, value_name = "IP")]
    pub rdma_address: Option<IpAddr>,

    /// Ring that the publisher writes into: a power of two, at least 8 KiB, locked in memory
    /// [default: 1 MiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    pub rdma_ring: Option<u64>,

    /// Put the ring into pages of 2 MiB, which must be reserved (`sysctl vm.nr_hugepages`)
    #[arg(long)]
    pub rdma_huge_pages: bool,

    /// Receives that are kept posted: how many writes may be under way [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub rdma_receives: Option<u32>,
}

impl RdmaArgs {
    /// Where to attach and, over RDMA, how. The command line comes before the environment, which
    /// the builder has looked at.
    pub(crate) fn apply(
        &self,
        builder: SubscriberBuilder,
        socket: Option<&Path>,
    ) -> Result<SubscriberBuilder, Misuse> {
        let builder = self.place(builder, socket)?;
        self.check_use(&builder)?;
        self.route(builder)
    }

    /// Where to attach.
    pub(crate) fn place(
        &self,
        builder: SubscriberBuilder,
        socket: Option<&Path>,
    ) -> Result<SubscriberBuilder, Misuse> {
        match (socket, &self.connect) {
            (Some(_), Some(_)) => Err(Misuse::TwoPublishers),
            (Some(path), None) => Ok(builder.socket(path)),
            (None, Some(address)) => Ok(builder.connect_to(address)),
            (None, None) => Ok(builder),
        }
    }

    /// Refuses options that mean nothing without RDMA, when this is a session without it.
    pub(crate) fn check_use(&self, builder: &SubscriberBuilder) -> Result<(), Misuse> {
        match (builder.target(), self.first_given()) {
            (Target::Socket(path), Some(flag)) => {
                Err(Misuse::NotOverRdma { flag, socket: path.clone() })
            }
            _ => Ok(()),
        }
    }

    /// How to attach over RDMA, if that is where the session goes.
    pub(crate) fn route(&self, builder: SubscriberBuilder) -> Result<SubscriberBuilder, Misuse> {
        let builder = match self.tls()? {
            Some(choices) => builder.tls(choices),
            None => builder,
        };
        Ok(builder.rdma(self.choices()))
    }

    /// The first option given that means nothing without RDMA.
    fn first_given(&self) -> Option<&'static str> {
        [
            ("--ca", self.ca.is_some()),
            ("--cert", self.cert.is_some()),
            ("--key", self.key.is_some()),
            ("--server-name", self.server_name.is_some()),
            ("--rdma-device", self.rdma_device.is_some()),
            ("--rdma-address", self.rdma_address.is_some()),
            ("--rdma-ring", self.rdma_ring.is_some()),
            ("--rdma-huge-pages", self.rdma_huge_pages),
            ("--rdma-receives", self.rdma_receives.is_some()),
        ]
        .into_iter()
        .find_map(|(flag, given)| given.then_some(flag))
    }

    fn tls(&self) -> Result<Option<TlsChoices>, Misuse> {
        let Self { ca, cert, key, server_name, .. } = self;
        let missing = match (ca, cert, key) {
            (Some(ca), Some(cert), Some(key)) => {
                return Ok(Some(TlsChoices {
                    ca: ca.clone(),
                    certificate: cert.clone(),
                    key: key.clone(),
                    server_name: server_name.clone(),
                }));
            }
            (None, ..) => "--ca",
            (_, None, _) => "--cert",
            (.., None) => "--key",
        };
        let given = match (ca, cert, key, server_name) {
            (Some(_), ..) => "--ca",
            (_, Some(_), ..) => "--cert",
            (_, _, Some(_), _) => "--key",
            (.., Some(_)) => "--server-name",
            (None, None, None, None) => return Ok(None),
        };
        Err(Misuse::PartOfTls { given, missing })
    }

    fn choices(&self) -> RdmaChoices {
        let usual = RdmaChoices::default();
        RdmaChoices {
            device: self.rdma_device.clone(),
            address: self.rdma_address,
            ring_bytes: self.rdma_ring.unwrap_or(usual.ring_bytes),
            huge_pages: self.rdma_huge_pages,
            receive_depth: self.rdma_receives.unwrap_or(usual.receive_depth),
            ..usual
        }
    }
}

pub(crate) fn address(text: &str) -> Result<String, String> {
    text.parse::<TcpTarget>().map(|_| text.to_owned()).map_err(|error| error.to_string())
}

/// A number of bytes, or one with a binary unit: `65536`, `64KiB`, `1 MiB`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let (number, unit) = UNITS
        .into_iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))
        .unwrap_or((text, 1));
    let wanted = || "a size is wanted, for example 1MiB or 65536".to_owned();
    let count: u64 = number.trim().parse().map_err(|_| wanted())?;
    count.checked_mul(unit).ok_or_else(wanted)
}

#[cfg(test)]
mod tests {
    use tapecast_subscriber::Subscriber;

    use super::*;

    fn remote() -> RdmaArgs {
        RdmaArgs { connect: Some("feed:7411".into()), ..RdmaArgs::default() }
    }

    #[test]
    fn a_size_has_a_binary_unit_or_none() {
        assert_eq!(bytes("65536"), Ok(65_536));
        assert_eq!(bytes("64KiB"), Ok(65_536));
        assert_eq!(bytes("1 MiB"), Ok(1 << 20));
        assert_eq!(bytes("2GiB"), Ok(2 << 30));
        for bad in ["", "MiB", "1MB", "-1", "1.5MiB", "99999999999GiB"] {
            assert!(bytes(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn certificates_come_together_or_not_at_all() {
        assert_eq!(remote().tls(), Ok(None));
        let whole = RdmaArgs {
            ca: Some("ca.pem".into()),
            cert: Some("me.pem".into()),
            key: Some("me.key".into()),
            ..remote()
        };
        let choices = whole.tls().unwrap().unwrap();
        assert_eq!((choices.certificate, choices.server_name), ("me.pem".into(), None));
        let part = |given, missing| Err(Misuse::PartOfTls { given, missing });
        let ca = RdmaArgs { ca: Some("ca.pem".into()), ..remote() };
        assert_eq!(ca.tls(), part("--ca", "--cert"));
        let cert = RdmaArgs { cert: Some("me.pem".into()), ..remote() };
        assert_eq!(cert.tls(), part("--cert", "--ca"));
        let no_key = RdmaArgs { cert: Some("me.pem".into()), ..ca };
        assert_eq!(no_key.tls(), part("--ca", "--key"));
        let name = RdmaArgs { server_name: Some("feed".into()), ..remote() };
        assert_eq!(name.tls(), part("--server-name", "--ca"));
    }

    #[test]
    fn the_command_line_comes_before_the_environment() {
        let socket = Path::new("/run/feed.sock");
        let elsewhere = || Subscriber::builder().connect_to("elsewhere:1");
        let builder = RdmaArgs::default().apply(elsewhere(), Some(socket)).unwrap();
        assert_eq!(builder.target(), &Target::Socket(socket.to_owned()));
        let builder = remote().apply(Subscriber::builder().socket(socket), None).unwrap();
        assert_eq!(builder.target(), &Target::Remote("feed:7411".into()));
        let builder = RdmaArgs::default().apply(elsewhere(), None).unwrap();
        assert_eq!(builder.target(), &Target::Remote("elsewhere:1".into()));
    }

    #[test]
    fn every_option_of_rdma_is_refused_over_a_socket() {
        type Give = fn(&mut RdmaArgs);
        let cases: [(&str, Give); 9] = [
            ("--ca", |args| args.ca = Some("x".into())),
            ("--cert", |args| args.cert = Some("x".into())),
            ("--key", |args| args.key = Some("x".into())),
            ("--server-name", |args| args.server_name = Some("x".into())),
            ("--rdma-device", |args| args.rdma_device = Some("x".into())),
            ("--rdma-address", |args| args.rdma_address = Some([10, 9, 0, 1].into())),
            ("--rdma-ring", |args| args.rdma_ring = Some(8192)),
            ("--rdma-huge-pages", |args| args.rdma_huge_pages = true),
            ("--rdma-receives", |args| args.rdma_receives = Some(1)),
        ];
        for (flag, give) in cases {
            let mut args = RdmaArgs::default();
            give(&mut args);
            let told = args.apply(Subscriber::builder(), Some(Path::new("/s"))).unwrap_err();
            assert_eq!(told, Misuse::NotOverRdma { flag, socket: "/s".into() });
            assert!(told.to_string().contains("--connect HOST:PORT"), "{told}");
        }
    }

    #[test]
    fn what_is_not_given_stays_as_the_sdk_has_it() {
        assert_eq!(remote().choices(), RdmaChoices::default());
        let args = RdmaArgs {
            rdma_ring: Some(8192),
            rdma_receives: Some(7),
            rdma_huge_pages: true,
            ..remote()
        };
        let expected = RdmaChoices {
            ring_bytes: 8192,
            receive_depth: 7,
            huge_pages: true,
            ..RdmaChoices::default()
        };
        assert_eq!(args.choices(), expected);
    }
}
