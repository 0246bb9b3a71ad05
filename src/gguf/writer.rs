//! Where everything of a file lies, and the bytes of its header.

use std::io::Write;

use super::error::GgufError;
use super::header::{check_alignment, check_alignment_number, check_key, first_duplicate, padded_end};
use super::limits::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC};
use super::malformation::Malformation;
use super::metadata::Metadata;
use super::owned_value::encode_bytes;
use super::tensor::TensorInfo;

/// The version that is written when nothing else is asked for.
pub const CURRENT_VERSION: u32 = 3;

/// The layout of one output file.
#[derive(Clone, Debug)]
pub struct Layout {
    header: Vec<u8>,
    tensors: Vec<TensorInfo>,
    file_bytes: u64,
}

impl Layout {
    /// Lays out a file of `metadata` and `tensors` in their order; the tensors' offsets are computed here.
    ///
    /// `alignment` must be what readers will find in the metadata ([`declared_alignment`]), since it decides where
    /// they look for the data. `version` is 2 or 3, which differ in nothing but the number.
    pub fn new(
        metadata: &Metadata,
        tensors: &[TensorInfo],
        alignment: u64,
        version: u32,
    ) -> Result<Self, GgufError> {
        Self::plan(metadata, tensors, alignment, version).map_err(|fault| GgufError::Layout { fault })
    }

    fn plan(
        metadata: &Metadata,
        tensors: &[TensorInfo],
        alignment: u64,
        version: u32,
    ) -> Result<Self, Malformation> {
        if !matches!(version, 2 | 3) {
            return Err(Malformation::UnknownVersion { version });
        }
        check_alignment_number(alignment)?;
        let declared = declared_alignment(metadata)?;
        if alignment != declared {
            return Err(Malformation::AlignmentMismatch { asked: alignment, declared });
        }
        check_keys(metadata)?;
        if let Some(tensor) = first_duplicate(tensors.iter().map(|info| info.name.as_str())) {
            return Err(Malformation::DuplicateTensor { tensor: tensor.to_owned() });
        }

        let mut header = Vec::new();
        header.extend(MAGIC);
        header.extend(version.to_le_bytes());
        header.extend((tensors.len() as u64).to_le_bytes());
        header.extend((metadata.len() as u64).to_le_bytes());
        metadata.encode_into(&mut header);
        let mut placed = Vec::with_capacity(tensors.len());
        let mut offset = 0;
        for info in tensors {
            info.check()?;
            let info = TensorInfo { offset, ..info.clone() };
            encode_tensor(&info, &mut header);
            offset = padded_end(&info, offset, alignment)
                .ok_or_else(|| Malformation::DataOverflow { tensor: info.name.clone() })?;
            placed.push(info);
        }
        header.resize(header.len().next_multiple_of(alignment as usize), 0);
        let file_bytes = offset.checked_add(header.len() as u64).filter(|&end| i64::try_from(end).is_ok());
        let last = || placed.last().map(|info| info.name.clone()).unwrap_or_default();
        let file_bytes = file_bytes.ok_or_else(|| Malformation::DataOverflow { tensor: last() })?;
        Ok(Self { header, tensors: placed, file_bytes })
    }

    /// The encoded header, padded up to the data section.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Where the data section starts in the file.
    pub fn data_offset(&self) -> u64 {
        self.header.len() as u64
    }

    /// The tensors with their offsets in this file.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Bytes of the file, the padding of the last tensor included.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Zero bytes that follow the data of the tensor with this index, the last one included; 0 if there is none.
    pub fn padding_after(&self, index: usize) -> u64 {
        let Some(info) = self.tensors.get(index) else { return 0 };
        let data_end = self.file_bytes - self.data_offset();
        let next = self.tensors.get(index + 1).map_or(data_end, |next| next.offset);
        next - info.offset - info.bytes()
    }
}

/// The alignment that readers of these metadata use: `general.alignment`, or 32.
pub fn declared_alignment(metadata: &Metadata) -> Result<u64, Malformation> {
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        value => check_alignment(value),
    }
}

fn check_keys(metadata: &Metadata) -> Result<(), Malformation> {
    for (index, (key, _)) in (0..).zip(metadata.raw_entries()) {
        check_key(key, index)?;
    }
    Ok(())
}

fn encode_tensor(info: &TensorInfo, out: &mut Vec<u8>) {
    encode_bytes(info.raw_name(), out);
    out.extend((info.dims.len() as u32).to_le_bytes());
    for dim in &info.dims {
        out.extend(dim.to_le_bytes());
    }
    out.extend(info.ty.id().to_le_bytes());
    out.extend(info.offset.to_le_bytes());
}

/// Writes a whole file of version 3 whose data are in memory: for small files and tests.
pub fn write_model(
    out: &mut impl Write,
    metadata: &Metadata,
    tensors: &[(TensorInfo, Vec<u8>)],
) -> Result<(), GgufError> {
    let infos: Vec<_> = tensors.iter().map(|(info, _)| info.clone()).collect();
    let alignment = declared_alignment(metadata).map_err(|fault| GgufError::Layout { fault })?;
    let layout = Layout::new(metadata, &infos, alignment, CURRENT_VERSION)?;
    for (info, data) in tensors {
        let (expected, found) = (info.bytes(), data.len() as u64);
        if expected != found {
            return Err(GgufError::DataSize { tensor: info.name.clone(), expected, found });
        }
    }
    let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(|error| GgufError::Write { error });
    write(layout.header())?;
    for (index, (_, data)) in tensors.iter().enumerate() {
        write(data)?;
        write(&vec![0; layout.padding_after(index) as usize])?;
    }
    Ok(())
}
