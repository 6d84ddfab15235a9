//! Sans-I/O protocol of tapecast: sessions, credit, conflation, fan-out, accounting.
