//! Traces in lines, one a token and layer: lines become tokens.

use super::meta::MAX_EXPERTS;
use super::{Batch, NO_EXPERT, Phase, RouterValues, Row, TraceError, TraceLayer, TraceMeta};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes of a line, at most: 1024 candidates with their values are a tenth of it.
const MAX_LINE: u64 = 1 << 20;
/// Bytes of tokens that are read at once.
const BATCH_BYTES: usize = 4 << 20;

/// What spreadsheets write before UTF-8.
pub(super) const BYTE_ORDER_MARK: &str = "\u{feff}";

/// What one line says: the routing of one token in one layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LayerLine {
    pub(super) session: u32,
    pub(super) turn: u32,
    /// Decode, when there is nothing else said.
    pub(super) prefill: bool,
    /// Every token is computed alone when there is nothing said.
    pub(super) ubatch: Option<u64>,
    pub(super) position: Option<u32>,
    pub(super) token: Option<i32>,
    pub(super) layer: u32,
    /// Candidates, best first.
    pub(super) experts: Vec<u16>,
    /// How many of them are selected; all, when there is nothing said.
    pub(super) used: Option<u32>,
    pub(super) values: Vec<f32>,
    /// Least, mean and deviation of the router values of all experts.
    pub(super) z: Option<[f32; 3]>,
}

/// How lines are written.
pub(super) trait Lines: Sized + Send {
    /// Takes the first line. Gives the reader of the others, the header when that line is one, and whether the line is
    /// used up.
    fn begin(first: &str) -> Result<(Self, Option<TraceMeta>, bool), String>;

    /// Reads a line.
    fn parse(&self, line: &str) -> Result<LayerLine, String>;
}

/// A trace in lines.
pub(super) struct TextReader<L> {
    lines: LineReader<L>,
    meta: TraceMeta,
    tokens: u64,
}

/// The lines of a file.
struct LineReader<L> {
    path: PathBuf,
    file: BufReader<File>,
    form: L,
    number: u64,
    text: String,
    /// The first line, where it is no header.
    first: Option<String>,
}

impl<L: Lines> LineReader<L> {
    fn open(path: &Path) -> Result<(Self, Option<TraceMeta>), TraceError> {
        let file = File::open(path).map_err(|error| TraceError::Read { path: path.to_owned(), error })?;
        let mut file = BufReader::with_capacity(1 << 16, file);
        let mut text = String::new();
        read_line(path, &mut file, 1, &mut text)?;
        if let Some(rest) = text.strip_prefix(BYTE_ORDER_MARK) {
            text = rest.to_owned();
        }
        let (form, header, used_up) = L::begin(text.trim_end()).map_err(|what| TraceError::Line {
            path: path.to_owned(),
            line: 1,
            what,
        })?;
        let first = (!used_up).then(|| std::mem::take(&mut text));
        let number = u64::from(used_up);
        Ok((LineReader { path: path.to_owned(), file, form, number, text, first }, header))
    }

    fn next(&mut self) -> Result<Option<(u64, LayerLine)>, TraceError> {
        loop {
            match self.first.take() {
                Some(first) => self.text = first,
                None => read_line(&self.path, &mut self.file, self.number + 1, &mut self.text)?,
            }
            if self.text.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            let line = self.text.trim_end();
            if !line.is_empty() {
                let parsed = self.form.parse(line).and_then(check_line);
                return parsed
                    .map(|line| Some((self.number, line)))
                    .map_err(|what| self.bad(self.number, what));
            }
        }
    }

    fn bad(&self, line: u64, what: String) -> TraceError {
        TraceError::Line { path: self.path.clone(), line, what }
    }
}

fn read_line(path: &Path, file: &mut impl BufRead, number: u64, text: &mut String) -> Result<(), TraceError> {
    text.clear();
    let read = file.take(MAX_LINE).read_line(text);
    let bad = |what: &str| TraceError::Line { path: path.to_owned(), line: number, what: what.to_owned() };
    match read {
        Ok(bytes) if bytes as u64 == MAX_LINE => Err(bad("it is longer than a MiB")),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Err(bad("it is not UTF-8")),
        Err(error) => Err(TraceError::Read { path: path.to_owned(), error }),
    }
}

fn check_line(line: LayerLine) -> Result<LayerLine, String> {
    let n = line.experts.len();
    if n == 0 || n > MAX_EXPERTS as usize {
        return Err(format!("{n} experts"));
    }
    if let Some(id) = line.experts.iter().find(|id| u32::from(**id) >= MAX_EXPERTS) {
        return Err(format!("expert {id} is out of range (at most {MAX_EXPERTS} in a layer)"));
    }
    if !line.values.is_empty() && line.values.len() != n {
        return Err(format!("{} values for {n} experts", line.values.len()));
    }
    if line.used.is_some_and(|used| used == 0 || used as usize > n) {
        return Err(format!("{} of {n} experts are used", line.used.unwrap_or(0)));
    }
    Ok(line)
}

impl<L: Lines> TextReader<L> {
    /// Reads the header or, where there is none, the whole file once, for what a header would say.
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        let (mut lines, header) = LineReader::<L>::open(path)?;
        let meta = match header {
            Some(meta) => meta,
            None => {
                let meta = survey(&mut lines)?;
                lines = LineReader::<L>::open(path)?.0;
                meta
            }
        };
        meta.check(path)?;
        Ok(TextReader { lines, meta, tokens: 0 })
    }

    pub(super) fn meta(&self) -> &TraceMeta {
        &self.meta
    }

    pub(super) fn meta_mut(&mut self) -> &mut TraceMeta {
        &mut self.meta
    }

    pub(super) fn read(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.clear();
        let first = self.tokens;
        while batch.bytes() < BATCH_BYTES && self.read_token(batch)? {}
        batch.check(&self.meta, &self.lines.path, first)?;
        Ok(!batch.rows.is_empty())
    }

    /// Reads the lines of one token, which are those of all layers in their order.
    fn read_token(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        let Some((number, line)) = self.lines.next()? else { return Ok(false) };
        batch.rows.push(Row {
            session: line.session,
            turn: line.turn,
            phase: if line.prefill { Phase::Prefill } else { Phase::Decode },
            ubatch: line.ubatch.unwrap_or(self.tokens),
            position: line.position.unwrap_or(0),
            token: line.token.unwrap_or(-1),
        });
        self.tokens += 1;
        let begin = (line.session, line.turn, line.prefill, line.ubatch, line.position, line.token);
        let mut current = (number, line);
        for at in 0..self.meta.layers.len() {
            let wanted = self.meta.layers[at].layer;
            let (number, line) = current;
            if line.layer != wanted {
                let what = format!("layer {} where the token's layer {wanted} is expected", line.layer);
                return Err(self.lines.bad(number, what));
            }
            let here = (line.session, line.turn, line.prefill, line.ubatch, line.position, line.token);
            if here != begin {
                return Err(self.lines.bad(number, format!("the token before it has no layer {wanted}")));
            }
            self.push(number, &line, at, batch)?;
            if at + 1 == self.meta.layers.len() {
                break;
            }
            current = self
                .lines
                .next()?
                .ok_or_else(|| self.lines.bad(number, "the file ends within a token".to_owned()))?;
        }
        Ok(true)
    }

    fn push(&self, number: u64, line: &LayerLine, at: usize, batch: &mut Batch) -> Result<(), TraceError> {
        let (layer, width) = (&self.meta.layers[at], self.meta.candidates as usize);
        let bad = |what: String| Err(self.lines.bad(number, what));
        if line.experts.len() > width || line.experts.len() < layer.n_expert_used as usize {
            let used = layer.n_expert_used;
            return bad(format!("{} experts where {used} to {width} are expected", line.experts.len()));
        }
        batch.ids.extend_from_slice(&line.experts);
        batch.ids.resize(batch.ids.len() + width - line.experts.len(), NO_EXPERT);
        if self.meta.router_values == RouterValues::None {
            return Ok(());
        }
        let Some([min, mean, std]) = line.z.filter(|_| line.values.len() == line.experts.len()) else {
            return bad("it has no router values, and other lines have".to_owned());
        };
        batch.values.extend_from_slice(&line.values);
        batch.values.resize(batch.values.len() + width - line.values.len(), f32::NAN);
        batch.z_min.push(min);
        batch.z_mean.push(mean);
        batch.z_std.push(std);
        Ok(())
    }
}

/// What a header would say of the lines that follow.
fn survey<L: Lines>(lines: &mut LineReader<L>) -> Result<TraceMeta, TraceError> {
    let mut layers = BTreeMap::<u32, TraceLayer>::new();
    let mut candidates = 0;
    let mut values = true;
    while let Some((number, line)) = lines.next()? {
        let n = line.experts.len() as u32;
        let used = line.used.unwrap_or(n);
        let n_expert = line.experts.iter().map(|id| u32::from(*id) + 1).max().unwrap_or(0);
        let new = TraceLayer { layer: line.layer, n_expert, n_expert_used: used, slabs: Vec::new() };
        let layer = layers.entry(line.layer).or_insert(new);
        layer.n_expert = layer.n_expert.max(n_expert);
        if layer.n_expert_used != used {
            let what = format!(
                "{used} experts are used where layer {} used {} before",
                line.layer, layer.n_expert_used
            );
            return Err(lines.bad(number, what));
        }
        candidates = candidates.max(n);
        values &= !line.values.is_empty() && line.z.is_some();
    }
    if layers.is_empty() {
        return Err(TraceError::NotATrace { path: lines.path.clone(), what: "it has no tokens".to_owned() });
    }
    let values = if values { RouterValues::Logits } else { RouterValues::None };
    Ok(TraceMeta::new(layers.into_values().collect(), candidates, values))
}
