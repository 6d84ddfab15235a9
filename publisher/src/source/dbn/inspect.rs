//! What a DBN file is, whatever its schema.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::counts::Counts;
use super::error::DbnError;
use super::records::RecordReader;
use super::{open_file, schema_name};
use crate::feed::StopFlag;

/// What a DBN input holds. Every schema can be inspected, not only those that make books.
#[derive(Debug)]
#[non_exhaustive]
pub struct DbnInspect {
    /// DBN version in the input; `None` for the legacy format DBZ.
    pub version: Option<u8>,
    /// Dataset code, e.g. `GLBX.MDP3`.
    pub dataset: String,
    /// Schema; `None` when the input mixes several.
    pub schema: Option<String>,
    /// Symbols as they were asked for.
    pub symbols: Vec<String>,
    /// Complete records.
    pub records: u64,
    /// Records by type: order and level records by action, others by name.
    pub by_type: Vec<(String, u64)>,
    /// Bytes of the input.
    pub bytes_read: u64,
    /// Why reading stopped early, if it did.
    pub fault: Option<DbnError>,
}

impl DbnInspect {
    /// Reads the whole of a file.
    ///
    /// # Errors
    /// [`DbnError`] when not even the metadata can be read. Later faults are in
    /// [`DbnInspect::fault`].
    pub fn open(path: &Path) -> Result<Self, DbnError> {
        let (file, _) = open_file(path, &StopFlag::default())?;
        Self::of_reader(&path.display().to_string(), file)
    }

    /// Reads the whole of an input that is called `name` in error texts.
    ///
    /// # Errors
    /// As [`DbnInspect::open`].
    pub fn of_reader<R: Read>(name: &str, input: R) -> Result<Self, DbnError> {
        let mut reader = RecordReader::open(Arc::from(name), input)?;
        let mut counts = Counts::default();
        let fault = loop {
            match reader.next() {
                Ok(Some(frame)) => counts.add(frame),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        let metadata = reader.metadata();
        Ok(Self {
            version: reader.version(),
            dataset: metadata.dataset.clone(),
            schema: metadata.schema.map(schema_name),
            symbols: metadata.symbols.clone(),
            records: reader.records(),
            by_type: counts.by_type(),
            bytes_read: reader.file_bytes(),
            fault,
        })
    }
}
