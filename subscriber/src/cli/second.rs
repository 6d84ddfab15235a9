//! A second publisher of the same feed.

use std::path::PathBuf;

use clap::Args;
use tapecast_subscriber::{AbSubscriber, Subscriber, SubscriberBuilder};

use super::args::SessionArgs;
use super::failure::Failure;
use super::misuse::Misuse;
use super::over_rdma::address;
use super::subscription::Subscription;

/// Where the second publisher is.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Second publisher of the same feed (side B)")]
pub(crate) struct SecondArgs {
    /// Attach to this one too, over shared memory. Each snapshot is taken once, from the side that
    /// brings it first, and when one side dies the other goes on without a gap. The summary tells
    /// each side's wins, gaps and lateness
    #[arg(long, value_name = "PATH", conflicts_with = "connect_b")]
    pub socket_b: Option<PathBuf>,

    /// The same over RDMA, with the certificates and RDMA options that are given
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub connect_b: Option<String>,
}

impl SecondArgs {
    /// Whether there is a second publisher.
    pub(crate) const fn is_given(&self) -> bool {
        self.socket_b.is_some() || self.connect_b.is_some()
    }

    /// A builder for it, if there is one.
    pub(crate) fn place(&self) -> Option<SubscriberBuilder> {
        let builder = Subscriber::builder();
        match (&self.socket_b, &self.connect_b) {
            (Some(path), _) => Some(builder.socket(path)),
            (None, Some(address)) => Some(builder.connect_to(address)),
            (None, None) => None,
        }
    }

    /// Attaches to one publisher or two, with `adapt` applied to what was chosen.
    pub(crate) fn connect(
        &self,
        session: &SessionArgs,
        adapt: impl Fn(SubscriberBuilder) -> SubscriberBuilder,
    ) -> Result<Subscription, Failure> {
        let Some(b) = self.place() else {
            let subscriber = adapt(session.builder()?).connect()?;
            return Ok(Subscription::One(Box::new(subscriber)));
        };
        let [a, b] = session.builders(b)?;
        if a.target() == b.target() {
            return Err(Misuse::SamePublisher { publisher: a.target().to_string() }.into());
        }
        Ok(Subscription::Ab(Box::new(AbSubscriber::connect(adapt(a), adapt(b))?)))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tapecast_subscriber::Target;

    use super::*;
    use crate::cli::args::{Cli, Command};

    fn tail(words: &[&str]) -> Result<(SessionArgs, SecondArgs), clap::Error> {
        let words = ["tapecast-subscriber", "tail"].iter().chain(words);
        match Cli::try_parse_from(words)?.command {
            Command::Tail(args) => Ok((args.session, args.second)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_sides_may_be_of_different_fabrics() {
        let words = ["--socket", "/a", "--connect-b", "127.0.0.1:7411", "--rdma-ring", "8192"];
        let (session, second) = tail(&words).unwrap();
        let [a, b] = session.builders(second.place().unwrap()).unwrap();
        assert_eq!(a.target(), &Target::Socket("/a".into()));
        assert_eq!(b.target(), &Target::Remote("127.0.0.1:7411".into()));
    }

    #[test]
    fn one_publisher_is_not_two() {
        let (session, second) = tail(&["--socket", "/a", "--socket-b", "/a"]).unwrap();
        let refused = second.connect(&session, |builder| builder).unwrap_err();
        assert!(refused.to_string().contains("another publisher"), "{refused}");
        assert!(tail(&["--socket-b", "/b", "--connect-b", "127.0.0.1:1"]).is_err());
    }

    #[test]
    fn options_of_rdma_are_refused_where_no_side_is_over_rdma() {
        let (session, second) = tail(&["-s", "/a", "--socket-b", "/b", "--ca", "x"]).unwrap();
        let refused = session.builders(second.place().unwrap()).unwrap_err();
        assert_eq!(refused, Misuse::NotOverRdma { flag: "--ca", socket: "/a".into() });
    }
}
