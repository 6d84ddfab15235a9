//! Control plane of tapecast: handshake over a Unix socket, peer credentials.
