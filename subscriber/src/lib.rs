//! The tapecast subscriber SDK and command line.
