//! Numbers of bytes as people write and read them.

use std::fmt;

/// A number of bytes as a person reads it: `512 bytes`, `3.4 MiB`, `17.2 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteCount(pub u64);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} bytes", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // What would be printed as 1024.00 belongs to the next unit.
        while value >= 1023.995 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        f.pad(&format!("{value:.2} {}", UNITS[unit]))
    }
}

/// A number of bytes as a person reads it, with the exact number: `17.25 GiB (18522046464 bytes)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WithBytes(pub u64);

impl fmt::Display for WithBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ ..1024 => write!(f, "{}", ByteCount(bytes)),
            bytes => write!(f, "{} ({bytes} bytes)", ByteCount(bytes)),
        }
    }
}

/// Unit names and their bytes; the first of those that divide a size is the one that it is printed with.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// Sizes as llama.cpp's `--split-max-size` takes them.
const SHORT_UNITS: [(&str, u64); 2] = [("G", 1_000_000_000), ("M", 1_000_000)];

/// Reads `14GiB`, `14.5 GB`, `14G` (which is 14 GB, as for llama.cpp's `--split-max-size`) or a plain number of bytes,
/// exactly; a fraction of a byte is dropped.
///
/// # Errors
/// Says what of the text is not a size.
pub fn parse_bytes(text: &str) -> Result<u64, &'static str> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let scale = match unit {
        "" => 1,
        _ if unit.starts_with(',') => return Err("write a point, not a comma, before the fraction"),
        _ => {
            let mut units = SHORT_UNITS.iter().chain(&UNITS);
            units
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                .ok_or("the unit is none of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB, and M and G as llama.cpp has them")?
                .1
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return Err("the size is not a number");
    }
    const LARGE: &str = "the size is too large";
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| LARGE)? };
    // Past 18 digits a fraction of a TiB is below a byte.
    let fraction = &fraction[..fraction.len().min(18)];
    let parts = fraction.parse::<u128>().unwrap_or(0);
    let below_one = parts * u128::from(scale) / 10u128.pow(fraction.len() as u32);
    let bytes = u128::from(whole) * u128::from(scale) + below_one;
    match u64::try_from(bytes) {
        Ok(0) => Err("a size is above 0"),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(LARGE),
    }
}

/// A size that [`parse_bytes`] reads back exactly: in the largest unit that divides it.
pub struct ExactSize(pub u64);

impl fmt::Display for ExactSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, scale)| self.0.is_multiple_of(*scale));
        let (name, scale) = unit.expect("the last unit divides every number");
        write!(f, "{}{name}", self.0 / scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_with_readable_units() {
        let cases = [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.00 KiB"),
            (1_048_575, "1.00 MiB"),
            (5 << 30, "5.00 GiB"),
            (u64::MAX, "16.00 EiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(ByteCount(bytes).to_string(), text);
        }
        assert_eq!(WithBytes(1_048_575).to_string(), "1.00 MiB (1048575 bytes)");
        assert_eq!(WithBytes(31).to_string(), "31 bytes");
    }

    #[test]
    fn sizes_of_llama_cpp_are_read_as_it_reads_them() {
        assert_eq!(parse_bytes("3G"), Ok(3_000_000_000));
        assert_eq!(parse_bytes("3M"), Ok(3_000_000));
        assert_eq!(parse_bytes("3m"), Ok(3_000_000));
        assert!(parse_bytes("3K").is_err());
    }

    #[test]
    fn a_decimal_comma_is_named() {
        assert!(parse_bytes("1,5GiB").unwrap_err().contains("comma"));
    }
}
