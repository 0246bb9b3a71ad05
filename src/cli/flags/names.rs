//! The names of llama.cpp's flags, as they stand on a command line.

use std::ffi::OsString;

/// Short flags of several letters, which the usual rules would read as several flags of one letter, and other names of
/// flags: each with our long name.
const NAMES: [(&str, &str); 27] = [
    ("-cmoe", "--cpu-moe"),
    ("-ctk", "--cache-type-k"),
    ("-ctv", "--cache-type-v"),
    ("-dev", "--device"),
    ("-fa", "--flash-attn"),
    ("-fit", "--fit"),
    ("-fitt", "--fit-target"),
    ("-hf", "--hf-repo"),
    ("-hff", "--hf-file"),
    ("-hfr", "--hf-repo"),
    ("-kvo", "--kv-offload"),
    ("-kvu", "--kv-unified"),
    ("-lm", "--load-mode"),
    ("-mg", "--main-gpu"),
    ("-ncffn", "--n-cpu-ffn"),
    ("-ncmoe", "--n-cpu-moe"),
    ("-ngl", "--gpu-layers"),
    ("-nkvo", "--no-kv-offload"),
    ("-no-kvu", "--kv-unified=off"),
    ("-nr", "--no-repack"),
    ("-ot", "--override-tensor"),
    ("-sm", "--split-mode"),
    ("-tb", "--threads-batch"),
    ("-ts", "--tensor-split"),
    ("-ub", "--ubatch-size"),
    ("--n-gpu-layers", "--gpu-layers"),
    ("--no-kv-unified", "--kv-unified=off"),
];

/// Flags of older llama.cpp, and what stands in their place.
const REPLACED: [(&str, &str); 5] = [
    ("--mlock", "--load-mode mlock"),
    ("--mmap", "--load-mode mmap"),
    ("--no-mmap", "--load-mode none"),
    ("--direct-io", "--load-mode dio"),
    ("-dio", "--load-mode dio"),
];

/// Flags of llama.cpp's tools that moeslice does not take.
#[rustfmt::skip]
const OTHERS: &[&str] = &[
    "--adaptive-decay", "--adaptive-target", "--agent", "--alias", "--api-key", "--api-key-file",
    "--api-prefix", "--attention", "--audio", "--backend-sampling", "--binary-file", "--cache-idle-slots",
    "--cache-list", "--cache-prompt", "--cache-ram", "--cache-reuse", "--cache-type-k-draft",
    "--cache-type-v-draft", "--chat-template-file", "--chat-template-kwargs", "--check",
    "--checkpoint-min-step", "--chunk", "--chunk-separator", "--chunk-size", "--cls-separator", "--color",
    "--completion-bash", "--connect", "--connect-code", "--cont-batching", "--context-file",
    "--context-shift", "--control-vector", "--control-vector-layer-range", "--control-vector-scaled",
    "--conversation", "--cors-credentials", "--cors-headers", "--cors-methods", "--cors-origins",
    "--cpu-mask", "--cpu-mask-batch", "--cpu-mask-batch-draft", "--cpu-mask-draft", "--cpu-moe-draft",
    "--cpu-range", "--cpu-range-batch", "--cpu-range-batch-draft", "--cpu-range-draft", "--cpu-strict",
    "--cpu-strict-batch", "--cpu-strict-batch-draft", "--cpu-strict-draft", "--ctx-checkpoints",
    "--defrag-thold", "--device-draft", "--dflash", "--diffusion-add-gumbel-noise", "--diffusion-alg-temp",
    "--diffusion-algorithm", "--diffusion-block-length", "--diffusion-cfg-scale", "--diffusion-eps",
    "--diffusion-steps", "--diffusion-visual", "--display-prompt", "--docker-repo", "--draft", "--draft-max",
    "--draft-min", "--draft-n", "--draft-n-min", "--draft-p-min", "--draft-p-split", "--dry-allowed-length",
    "--dry-base", "--dry-multiplier", "--dry-penalty-last-n", "--dry-sequence-breaker", "--dynatemp-exp",
    "--dynatemp-range", "--eagle3", "--embd-gemma-default", "--embd-normalize", "--embd-output-format",
    "--embd-separator", "--embedding", "--embeddings", "--epochs", "--escape", "--fim-qwen-1.5b-default",
    "--fim-qwen-14b-spec", "--fim-qwen-30b-default", "--fim-qwen-3b-default", "--fim-qwen-7b-default",
    "--fim-qwen-7b-spec", "--fit-ctx", "--fit-print", "--frequency-penalty", "--from-chunk",
    "--gpt-oss-120b-default", "--gpt-oss-20b-default", "--gpu-layers-draft", "--grammar", "--grammar-file",
    "--grp-attn-n", "--grp-attn-w", "--hellaswag", "--hellaswag-tasks", "--hf-repo-draft", "--hf-token",
    "--host", "--ids", "--ignore-eos", "--image", "--image-max-tokens", "--image-min-tokens", "--in-file",
    "--in-prefix", "--in-prefix-bos", "--in-suffix", "--interactive", "--interactive-first", "--jinja",
    "--json-schema", "--json-schema-file", "--junk", "--keep", "--kl-divergence", "--kl-divergence-base",
    "--kv-unified-per-slot", "--lazy-mode", "--learning-rate", "--learning-rate-decay-epochs",
    "--learning-rate-min", "--list-devices", "--log-colors", "--log-disable", "--log-file", "--log-jsonl",
    "--log-prefix", "--log-prompts-dir", "--log-timestamps", "--log-verbose", "--log-verbosity",
    "--logit-bias", "--logits-output-dir", "--lookup-cache-dynamic", "--lookup-cache-static", "--lora",
    "--lora-init-without-apply", "--lora-scaled", "--mcp-servers-config", "--mcp-servers-json",
    "--media-path", "--method", "--metrics", "--min-p", "--mirostat", "--mirostat-ent", "--mirostat-lr",
    "--mmproj", "--mmproj-auto", "--mmproj-offload", "--mmproj-url", "--model-draft", "--model-url",
    "--models-autoload", "--models-dir", "--models-max", "--models-memory-margin", "--models-preset",
    "--mtmd-batch-max-tokens", "--mtp", "--multiline-input", "--multiple-choice", "--multiple-choice-tasks",
    "--n-cpu-moe-draft", "--n-gpu-layers-draft", "--n-predict", "--negative-file", "--nextn", "--no-agent",
    "--no-bos", "--no-cache-idle-slots", "--no-cache-prompt", "--no-cont-batching", "--no-context-shift",
    "--no-conversation", "--no-cors-credentials", "--no-display-prompt", "--no-escape", "--no-jinja",
    "--no-log-jsonl", "--no-log-prefix", "--no-log-timestamps", "--no-mmproj", "--no-mmproj-auto",
    "--no-mmproj-offload", "--no-models-autoload", "--no-parse-special", "--no-perf", "--no-ppl",
    "--no-prefill-assistant", "--no-reasoning-preserve", "--no-show-timings", "--no-skip-chat-parsing",
    "--no-slots", "--no-spec-draft-backend-sampling", "--no-ui", "--no-ui-mcp-proxy", "--no-warmup",
    "--no-webui", "--no-webui-mcp-proxy", "--offline", "--optimizer", "--output-file", "--output-format",
    "--output-frequency", "--override-tensor-draft", "--parallel", "--path", "--pca-batch", "--pca-iter",
    "--perf", "--poll", "--poll-batch", "--poll-batch-draft", "--poll-draft", "--pooling", "--port", "--pos",
    "--positive-file", "--ppl", "--ppl-output-type", "--ppl-stride", "--predict", "--prefill-assistant",
    "--presence-penalty", "--print-token-count", "--prio", "--prio-batch", "--prio-batch-draft",
    "--prio-draft", "--process-output", "--prompt", "--prompt-cache", "--prompt-cache-all",
    "--prompt-cache-ro", "--props", "--reasoning", "--reasoning-budget", "--reasoning-budget-message",
    "--reasoning-effort", "--reasoning-format", "--reasoning-preserve", "--repeat-last-n", "--repeat-penalty",
    "--rerank", "--reranking", "--reuse-port", "--reverse-prompt", "--rope-freq-base", "--rope-freq-scale",
    "--rope-scale", "--rope-scaling", "--rpc", "--sampler-seq", "--samplers", "--sampling-seq",
    "--save-all-logits", "--save-frequency", "--save-logits", "--seed", "--sequences", "--server-base",
    "--show-count", "--show-statistics", "--show-timings", "--simple-io", "--single-turn",
    "--skip-chat-parsing", "--sleep-idle-seconds", "--slot-prompt-similarity", "--slot-save-path", "--slots",
    "--spec-default", "--spec-draft-backend-sampling", "--spec-draft-cpu-mask", "--spec-draft-cpu-mask-batch",
    "--spec-draft-cpu-moe", "--spec-draft-cpu-range", "--spec-draft-cpu-range-batch",
    "--spec-draft-cpu-strict", "--spec-draft-cpu-strict-batch", "--spec-draft-device", "--spec-draft-hf",
    "--spec-draft-model", "--spec-draft-n-cpu-moe", "--spec-draft-n-max", "--spec-draft-n-min",
    "--spec-draft-n-ubatch", "--spec-draft-ncmoe", "--spec-draft-ngl", "--spec-draft-override-tensor",
    "--spec-draft-p-min", "--spec-draft-p-split", "--spec-draft-poll", "--spec-draft-poll-batch",
    "--spec-draft-prio", "--spec-draft-prio-batch", "--spec-draft-sampling", "--spec-draft-threads",
    "--spec-draft-threads-batch", "--spec-draft-type-k", "--spec-draft-type-v", "--spec-ngram-map-k-min-hits",
    "--spec-ngram-map-k-size-m", "--spec-ngram-map-k-size-n", "--spec-ngram-map-k4v-min-hits",
    "--spec-ngram-map-k4v-size-m", "--spec-ngram-map-k4v-size-n", "--spec-ngram-min-hits",
    "--spec-ngram-mod-n-match", "--spec-ngram-mod-n-max", "--spec-ngram-mod-n-min",
    "--spec-ngram-simple-min-hits", "--spec-ngram-simple-size-m", "--spec-ngram-simple-size-n",
    "--spec-ngram-size-m", "--spec-ngram-size-n", "--spec-synth-len", "--spec-synth-rates", "--spec-type",
    "--special", "--spm-infill", "--sse-ping-interval", "--ssl-cert-file", "--ssl-key-file", "--stdin",
    "--swa-checkpoints", "--swa-full", "--system-prompt", "--system-prompt-file", "--tags", "--temp",
    "--temperature", "--tensor-filter", "--threads-batch-draft", "--threads-draft", "--threads-http",
    "--timeout", "--tools", "--tools-runtime", "--top-k", "--top-n-sigma", "--top-nsigma", "--top-p",
    "--tts-lang", "--tts-speaker-file", "--tts-voice", "--typical", "--typical-p", "--ui", "--ui-config",
    "--ui-config-file", "--ui-mcp-proxy", "--usage", "--val-split", "--verbose-prompt", "--verbosity",
    "--video", "--video-ffmpeg-dir", "--video-fps", "--video-timestamp-interval",
    "--vision-gemma-12b-default", "--vision-gemma-4b-default", "--warmup", "--webui", "--webui-config",
    "--webui-config-file", "--webui-mcp-proxy", "--weight-decay", "--winogrande", "--winogrande-tasks",
    "--xtc-probability", "--xtc-threshold", "--yarn-attn-factor", "--yarn-beta-fast", "--yarn-beta-slow",
    "--yarn-ext-factor", "--yarn-orig-ctx", "-C", "-Cb", "-Cbd", "-Cd", "-Cr", "-Crb", "-Crbd", "-Crd", "-a",
    "-ag", "-bf", "-bs", "-cb", "-cl", "-cmoed", "-cms", "-cnv", "-co", "-cram", "-ctkd", "-ctvd", "-ctxcp",
    "-decay-epochs", "-devd", "-dr", "-dt", "-e", "-epochs", "-fitc", "-fitp", "-gan", "-gaw", "-hfd",
    "-hfrd", "-hft", "-i", "-if", "-j", "-jf", "-l", "-lcd", "-lcs", "-lr", "-lr-min", "-lv", "-lzm", "-md",
    "-mli", "-mm", "-mmu", "-mu", "-n", "-ncmoed", "-ngld", "-no-ag", "-no-cnv", "-nocb", "-np", "-npl",
    "-npp", "-ns", "-ntg", "-ofreq", "-opt", "-otd", "-p", "-pps", "-ptc", "-r", "-rea", "-s", "-sp", "-sps",
    "-st", "-sys", "-sysf", "-tbd", "-td", "-tgs", "-to", "-val-split", "-wd",
];

/// Replaces llama.cpp's names by ours, up to a `--`.
///
/// # Errors
/// Names a flag that would be read as something else.
pub fn translate(arguments: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let mut rest = false;
    let mut rename = |argument: OsString| {
        rest |= argument == "--";
        let Some(text) = argument.to_str().filter(|text| !rest && text.starts_with('-')) else {
            return Ok(argument);
        };
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        // As llama.cpp does with its long names.
        let name = if name.starts_with("--") { name.replace('_', "-") } else { name.to_owned() };
        if let Some((_, instead)) = REPLACED.iter().find(|(old, _)| *old == name) {
            return Err(format!("{name} is now {instead}"));
        }
        let several_letters = !name.starts_with("--") && name.len() > 2;
        if let Some(why) = refusal(&name).filter(|_| several_letters) {
            return Err(why);
        }
        let long = NAMES.iter().find(|(other, _)| *other == name).map_or(name.as_str(), |(_, long)| long);
        Ok(value.map_or_else(|| long.into(), |value| format!("{long}={value}").into()))
    };
    arguments.into_iter().map(&mut rename).collect()
}

/// What to say of a flag that is unknown here and known to llama.cpp.
pub fn refusal(name: &str) -> Option<String> {
    OTHERS
        .binary_search(&name)
        .is_ok()
        .then(|| format!("{name} is a flag of llama.cpp's tools that has no meaning in moeslice"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(arguments: &[&str]) -> Result<Vec<String>, String> {
        let translated = translate(arguments.iter().map(OsString::from))?;
        Ok(translated.into_iter().map(|argument| argument.into_string().unwrap()).collect())
    }

    #[test]
    fn the_names_of_llama_cpp_become_ours() {
        let given = ["-tb", "4", "-ub=64", "-ngl", "-1", "--ctx_size", "128", "-no-kvu", "-nkvo"];
        let ours = ["--threads-batch", "4", "--ubatch-size=64", "--gpu-layers", "-1", "--ctx-size", "128"];
        let ours: Vec<&str> = ours.into_iter().chain(["--kv-unified=off", "--no-kv-offload"]).collect();
        assert_eq!(translated(&given).unwrap(), ours);
        assert_eq!(translated(&["-f", "a_b", "--", "-tb"]).unwrap(), ["-f", "a_b", "--", "-tb"]);
    }

    #[test]
    fn flags_without_meaning_here_are_named_as_such() {
        assert!(translated(&["-np", "4"]).unwrap_err().contains("-np is a flag of llama.cpp's"));
        assert!(translated(&["--no-mmap"]).unwrap_err().contains("--load-mode none"));
        // A flag of one letter may be one of ours: the parser says whether it is.
        assert_eq!(translated(&["-p", "x"]).unwrap(), ["-p", "x"]);
        assert!(refusal("--rope-scaling").is_some() && refusal("--nonsense").is_none());
    }

    #[test]
    fn the_names_are_sorted() {
        assert!(OTHERS.is_sorted());
        assert!(NAMES.iter().all(|(name, _)| refusal(name).is_none()));
    }
}
