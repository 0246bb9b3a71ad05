//! `general.size_label`: the size of a model as its name tells it.

/// The label of a model after a cut.
///
/// `label` is that of the model before, whose layers had `n_expert` experts and now have `k`; `parameters` counts all
/// elements of the tensors that stay.
///
/// A label that counts experts, `128x1.8B`, gets the new number: the part behind the `x` is the size of what is not
/// an expert together with one expert, which a cut leaves alone. In every other label the total is computed from
/// the parameters that are left; a part that tells the active parameters (`30B-A3B`) stays, since a token still goes
/// to as many experts.
pub(super) fn relabel(label: &str, n_expert: u32, k: u32, parameters: u64) -> String {
    if let Some(rest) = label.strip_prefix(&format!("{n_expert}x")) {
        return format!("{k}x{rest}");
    }
    let total = rounded(parameters);
    match label.split_once('-') {
        Some((_, active)) if is_active(active) => format!("{total}-{active}"),
        _ => total,
    }
}

/// Whether a part of a label tells the active parameters: `A3B`, `A2.7B`.
fn is_active(part: &str) -> bool {
    let Some(number) = part.strip_prefix('A').and_then(|rest| rest.strip_suffix(['K', 'M', 'B', 'T'])) else {
        return false;
    };
    number.starts_with(|c: char| c.is_ascii_digit()) && number.parse::<f64>().is_ok()
}

/// A number of parameters with at least two digits: `350K`, `1.5M`, `30B`, `671B`.
fn rounded(parameters: u64) -> String {
    let steps = [(1e12, 'T'), (1e9, 'B'), (1e6, 'M')];
    let parameters = parameters as f64;
    let (scale, unit) = steps.into_iter().find(|&(scale, _)| parameters >= scale).unwrap_or((1e3, 'K'));
    let value = parameters / scale;
    // What rounds to two digits before the point needs none behind it.
    if value.round() >= 10.0 { format!("{value:.0}{unit}") } else { format!("{value:.1}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_label_follows_the_number_of_experts() {
        let cases = [
            ("128x1.8B", 128, 96, 1, "96x1.8B"),
            ("8x7B", 8, 6, 1, "6x7B"),
            // The number is not that of the experts.
            ("16x12M", 32, 16, 150_000_000, "150M"),
            ("30B-A3B", 128, 96, 23_400_000_000, "23B-A3B"),
            ("35B", 256, 192, 27_200_000_000, "27B"),
            ("1.5T-A49.5B", 384, 192, 780_000_000_000, "780B-A49.5B"),
            ("huge-A", 8, 4, 9_960_000, "10M"),
            ("small", 8, 4, 2_340, "2.3K"),
            ("", 8, 4, 40, "0.0K"),
        ];
        for (label, n_expert, k, parameters, expected) in cases {
            assert_eq!(relabel(label, n_expert, k, parameters), expected, "{label}");
        }
    }
}
