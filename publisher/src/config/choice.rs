//! Values that are one of a few fixed words.

use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::value::ScalarText;

/// Declares a type whose values are a few fixed words.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$case_doc:meta])* $case:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$case_doc])* $case,)+ }

        impl $name {
            /// The word that stands for this value.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$case => $word,)+ }
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$case),)+
                    _ => Err(format!("{text:?} is not a known value")),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.word())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(ScalarText)?.parse().map_err(D::Error::custom)
            }
        }
    };
}

choice! {
    /// Where market data comes from.
    SourceKind {
        /// A Nasdaq TotalView-ITCH 5.0 file.
        Itch = "itch",
        /// A Databento DBN file.
        Dbn = "dbn",
        /// A journal of published snapshots, a file or a folder.
        Journal = "journal",
        /// The simulated exchange.
        Synthetic = "synthetic",
    }
}

choice! {
    /// When a venue event of an ITCH feed, which has no mark for it, is over.
    EventEnd {
        /// After a run of messages with equal timestamps.
        Timestamp = "timestamp",
        /// After every message.
        Message = "message",
    }
}

choice! {
    /// Who says when a feed message was received (`ts_recv`).
    ReceiveTime {
        /// The feed: the capture that recorded it, or the venue's own time where there is no other.
        Feed = "feed",
        /// This host: when the message was due by the pace, or, unpaced, when it was read.
        Host = "host",
    }
}

choice! {
    /// What the sender does when it has nothing to do.
    Idle {
        /// Burns its core: lowest latency.
        Spin = "spin",
        /// Yields its core to others that want it.
        Yield = "yield",
        /// Sleeps until there is work.
        Block = "block",
    }
}

choice! {
    /// How the shared region is protected from writes by subscribers.
    Seal {
        /// The kernel refuses every new writable mapping.
        FutureWrite = "future-write",
        /// Mode 0600: only the publisher's own user could map it writable.
        Owner = "owner",
    }
}

choice! {
    /// How snapshots reach subscribers.
    FabricKind {
        /// Through shared memory, on one host.
        Shm = "shm",
        /// By RDMA, to other hosts.
        Verbs = "verbs",
    }
}

choice! {
    /// Whether the TCP control plane is protected.
    TlsMode {
        /// Beyond a loopback address, and wherever one of the files is named.
        Auto = "auto",
        /// Always.
        On = "on",
        /// Never; only a loopback address can be served like that.
        Off = "off",
    }
}

choice! {
    /// Largest payload of one RDMA packet.
    LargestMtu {
        /// As large as both ports allow.
        Auto = "auto",
        /// 256 bytes.
        Bytes256 = "256",
        /// 512 bytes.
        Bytes512 = "512",
        /// 1024 bytes.
        Bytes1024 = "1024",
        /// 2048 bytes.
        Bytes2048 = "2048",
        /// 4096 bytes.
        Bytes4096 = "4096",
    }
}

choice! {
    /// What happens when a subscriber does not keep up.
    PolicyWord {
        /// It sees the newest snapshot of each instrument.
        Conflate = "conflate",
        /// The publisher waits for it.
        Lossless = "lossless",
        /// Its session ends.
        Disconnect = "disconnect",
    }
}

choice! {
    /// When what a journal says is brought to the disk.
    JournalSync {
        /// When the system sees fit.
        Never = "never",
        /// When a file is closed.
        Close = "close",
    }
}

choice! {
    /// Least severe log line that is written.
    LogLevel {
        /// Errors only.
        Error = "error",
        /// And warnings.
        Warn = "warn",
        /// And one line for each attach, detach and change of state.
        Info = "info",
        /// And detail for support.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

choice! {
    /// Form of log lines.
    LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}
