//! Rows as a table in Markdown: the columns of `llama-bench`, and ours behind them.

use super::row::cell;
use super::run::ModelBench;
use crate::json::Json;
use crate::units::ByteCount;

/// Settings that have a column where they are not the usual ones: the field, its column, and what is usual.
const SETTINGS: [(&str, &str, &str); 16] = [
    ("n_cpu_moe", "n_cpu_moe", "0"),
    ("n_batch", "n_batch", "2048"),
    ("n_ubatch", "n_ubatch", "512"),
    ("type_k", "type_k", "f16"),
    ("type_v", "type_v", "f16"),
    ("main_gpu", "main_gpu", "0"),
    ("split_mode", "sm", "layer"),
    ("no_kv_offload", "nkvo", "0"),
    ("flash_attn", "fa", "-1"),
    ("devices", "dev", "auto"),
    ("tensor_split", "ts", "0.00"),
    ("tensor_buft_overrides", "ot", "none"),
    ("load_mode", "lm", "auto"),
    ("no_op_offload", "nopo", "0"),
    ("no_host", "noh", "0"),
    ("repack", "rpk", "1"),
];

/// The table of `rows`, one for each test of each of `benches`; `people` has what people read of the same.
pub(super) fn markdown(benches: &[ModelBench], rows: &[Json], people: &[Vec<String>]) -> String {
    let field = |row: &Json, name: &str| row.get(name).map(cell).unwrap_or_default();
    let on_processor = rows.iter().all(|row| field(row, "backends") == "CPU");
    let place = if on_processor { ("n_threads", "threads") } else { ("n_gpu_layers", "ngl") };
    let unusual =
        SETTINGS.iter().filter(|(name, _, usual)| rows.iter().any(|row| field(row, name) != *usual));
    let settings: Vec<(&str, &str)> =
        [place].into_iter().chain(unusual.map(|(name, column, _)| (*name, *column))).collect();
    let columns =
        ["model", "size", "params", "backend"].into_iter().chain(settings.iter().map(|(_, column)| *column));
    let columns: Vec<&str> =
        columns.chain(["test", "t/s", "file", "median t/s", "ratio", "load s", "peak"]).collect();
    let line = |cells: &[String]| {
        let escaped: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", escaped.join(" | "))
    };
    let mut text = line(&columns.iter().map(|&column| column.to_owned()).collect::<Vec<_>>());
    text += &format!("|---|{}\n", "---:|".repeat(columns.len() - 1));
    let models = benches.iter().flat_map(|bench| bench.tests.iter().map(move |_| bench));
    for ((bench, row), read) in models.zip(rows).zip(people) {
        let [file, _, test, median, mean, rest @ ..] = read.as_slice() else { continue };
        let mut cells = vec![
            bench.description.clone(),
            ByteCount(bench.size).to_string(),
            parameters(bench.n_params),
            field(row, "backends"),
        ];
        cells.extend(settings.iter().map(|(name, _)| field(row, name)));
        cells.extend([test, mean, file, median].into_iter().cloned());
        cells.extend(rest.iter().cloned());
        text += &line(&cells);
    }
    let of_build = |name| rows.first().map(|row| field(row, name)).unwrap_or_default();
    text + &format!("\nbuild: {} ({})\n", of_build("build_commit"), of_build("build_number"))
}

fn parameters(count: u64) -> String {
    let count = count as f64;
    if count < 1e9 { format!("{:.2} M", count / 1e6) } else { format!("{:.2} B", count / 1e9) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_counted_in_millions_and_billions() {
        assert_eq!(parameters(3_622_272), "3.62 M");
        assert_eq!(parameters(30_532_122_624), "30.53 B");
    }
}
