//! The share of each corpus when several are ranked together.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The weights of the corpora.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Blend {
    /// Each token counts alike: the totals as they are.
    #[default]
    Tokens,
    /// Each corpus is divided by its own tokens and multiplied by its share. The shares need not add up to 1.
    Shares(BTreeMap<String, f64>),
}

/// What is wrong with a blend.
#[derive(Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum BlendError {
    /// Not `NAME=SHARE`.
    #[error("blend: {part:?} is not NAME=SHARE; write for example dev=0.5,pm=0.5")]
    Part {
        /// The text between two commas.
        part: String,
    },
    /// A share that is no weight.
    #[error("blend: the share of {corpus:?} is {share:?}; it must be a number of 0 or more")]
    Share {
        /// The corpus.
        corpus: String,
        /// The text of the share.
        share: String,
    },
    /// The same corpus twice.
    #[error("blend: corpus {corpus:?} is named twice")]
    Twice {
        /// The corpus.
        corpus: String,
    },
    /// Every share is zero.
    #[error("blend: every share is 0; give at least one corpus a share above 0")]
    AllZero,
    /// A name that the usage does not know.
    #[error("blend: the usage has no corpus {corpus:?}; it has {known}")]
    UnknownCorpus {
        /// The corpus.
        corpus: String,
        /// The corpora of the usage.
        known: String,
    },
    /// A corpus without a share.
    #[error("blend: corpus {corpus:?} has no share; give it one (0 leaves it out)")]
    NoShare {
        /// The corpus.
        corpus: String,
    },
}

impl Blend {
    /// The share of each of the corpora called `names`, scaled to add up to 1; `None` for [`Blend::Tokens`].
    ///
    /// # Errors
    /// When the blend and the corpora do not name the same, or a share is no weight.
    pub fn shares<'a>(
        &'a self,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<Option<BTreeMap<&'a str, f64>>, BlendError> {
        let Some(mut shares) = self.stated(names)? else { return Ok(None) };
        let sum: f64 = shares.values().sum();
        shares.values_mut().for_each(|share| *share /= sum);
        Ok(Some(shares))
    }

    /// As [`shares`](Self::shares), not scaled: the numbers as they were written.
    pub(super) fn stated<'a>(
        &'a self,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<Option<BTreeMap<&'a str, f64>>, BlendError> {
        let Blend::Shares(shares) = self else { return Ok(None) };
        check(shares)?;
        let names: Vec<&str> = names.collect();
        if let Some(corpus) = shares.keys().find(|corpus| !names.contains(&corpus.as_str())) {
            return Err(BlendError::UnknownCorpus { corpus: corpus.clone(), known: names.join(", ") });
        }
        names
            .into_iter()
            .map(|name| match shares.get(name) {
                Some(&share) => Ok((name, share)),
                None => Err(BlendError::NoShare { corpus: name.into() }),
            })
            .collect::<Result<_, _>>()
            .map(Some)
    }
}

/// Refuses negative and infinite shares, and shares whose sum is 0 or infinite.
fn check(shares: &BTreeMap<String, f64>) -> Result<(), BlendError> {
    for (corpus, share) in shares {
        if !share.is_finite() || *share < 0.0 {
            return Err(BlendError::Share { corpus: corpus.clone(), share: share.to_string() });
        }
    }
    let sum: f64 = shares.values().sum();
    match shares.iter().max_by(|a, b| a.1.total_cmp(b.1)) {
        Some((corpus, share)) if sum.is_infinite() => {
            Err(BlendError::Share { corpus: corpus.clone(), share: share.to_string() })
        }
        Some(_) if sum > 0.0 => Ok(()),
        _ => Err(BlendError::AllZero),
    }
}

impl FromStr for Blend {
    type Err = BlendError;

    /// Reads `dev=0.5,pm=0.3,family=0.2`.
    fn from_str(text: &str) -> Result<Self, BlendError> {
        let mut shares = BTreeMap::new();
        for part in text.split(',') {
            // A name may hold '=', a share cannot.
            let (name, share) = part
                .rsplit_once('=')
                .filter(|(name, _)| !name.is_empty())
                .ok_or_else(|| BlendError::Part { part: part.into() })?;
            let value =
                share.parse().map_err(|_| BlendError::Share { corpus: name.into(), share: share.into() })?;
            if shares.insert(name.to_owned(), value).is_some() {
                return Err(BlendError::Twice { corpus: name.into() });
            }
        }
        check(&shares)?;
        Ok(Blend::Shares(shares))
    }
}

impl fmt::Display for Blend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blend::Tokens => f.write_str("tokens"),
            Blend::Shares(shares) => {
                for (at, (name, share)) in shares.iter().enumerate() {
                    write!(f, "{}{name}={share}", if at == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}
