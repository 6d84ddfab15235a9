//! Fabrics of tapecast: sim, shm; page pool and memory regions.
