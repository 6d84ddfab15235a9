//! A place for a socket, and a publisher that grants.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use tapecast_control::client::{self, AttachError, Granted};
use tapecast_control::{Access, Listener, ListenerOptions, ListenerStats};
use tapecast_wire::attach::{Accepted, AttachRequest};
use tapecast_wire::{Epoch, SessionId};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// So long that only a hang reaches it.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A directory of its own, and the path of a socket in it.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
    pub(crate) socket: PathBuf,
}

pub(crate) fn place() -> Place {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("p.sock");
    Place { directory, socket }
}

impl Place {
    pub(crate) fn options(&self) -> ListenerOptions {
        ListenerOptions {
            handshake_timeout: LONG,
            ..ListenerOptions::new(&self.socket, Access::own())
        }
    }

    pub(crate) fn attach(&self) -> Result<Granted, AttachError> {
        attach(&self.socket)
    }

    pub(crate) fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).unwrap()
    }
}

pub(crate) fn attach(socket: &Path) -> Result<Granted, AttachError> {
    client::attach(socket, &AttachRequest::default(), LONG)
}

pub(crate) fn accepted() -> Accepted {
    Accepted { session_id: SessionId(7), epoch: Epoch(17), instruments: vec![] }
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A publisher on a thread of its own that grants every request, until it is dropped.
pub(crate) struct Granting {
    stop: Option<oneshot::Sender<oneshot::Sender<ListenerStats>>>,
    thread: Option<JoinHandle<()>>,
}

impl Granting {
    pub(crate) fn start(options: ListenerOptions) -> Self {
        let (stop, stopped) = oneshot::channel::<oneshot::Sender<ListenerStats>>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            runtime().block_on(async move {
                let mut listener = Listener::bind(options).unwrap();
                ready.send(()).unwrap();
                let mut stopped = std::pin::pin!(stopped);
                loop {
                    tokio::select! {
                        pending = listener.accept() => {
                            if let Ok(mut lifeline) = pending.accept(&accepted(), &[]).await {
                                tokio::spawn(async move { lifeline.closed().await });
                            }
                        }
                        stats = &mut stopped => {
                            if let Ok(stats) = stats {
                                let _ = stats.send(listener.stats());
                            }
                            return;
                        }
                    }
                }
            });
        });
        is_ready.recv().unwrap();
        Self { stop: Some(stop), thread: Some(thread) }
    }

    /// Stops it; returns what it has counted.
    pub(crate) fn stop(mut self) -> ListenerStats {
        let (stats, taken) = oneshot::channel();
        self.stop.take().unwrap().send(stats).unwrap();
        taken.blocking_recv().unwrap()
    }
}

impl Drop for Granting {
    fn drop(&mut self) {
        self.stop.take();
        self.thread.take().unwrap().join().unwrap();
    }
}
