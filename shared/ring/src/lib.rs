//! Broadcast ring, remote ring, latest table and session cell over shared memory.
