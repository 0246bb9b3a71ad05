//! One row for every architecture of the linked llama.cpp.

use crate::support::isolated;
use moeslice::arch;
use moeslice::llama::Backend;
use std::collections::BTreeMap;

/// What is known of an architecture, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// Profile, cut and mask are proven by the test of this name.
    Proven,
    /// The cut is proven, but the model does not run by itself.
    CutOnly,
    /// It has experts and is not cut.
    Refused,
    /// llama.cpp makes no tensor with experts for it, whatever the metadata say.
    Dense,
    /// As [`Row::Dense`] by its code; the recipes do not suffice to make a model of it.
    DenseByCode,
}

macro_rules! proven {
    ($($test:ident = $architecture:literal,)*) => {
        /// Architectures with a test of their own.
        const PROVEN: &[&str] = &[$($architecture),*];

        /// One test an architecture.
        mod proven {
            $(
                #[test]
                fn $test() {
                    crate::prove($architecture);
                }
            )*
        }
    };
}

proven! {
    afmoe = "afmoe",
    arctic = "arctic",
    bailingmoe = "bailingmoe",
    bailingmoe2 = "bailingmoe2",
    bailingmoe3 = "bailingmoe3",
    beam = "beam",
    cohere2moe = "cohere2moe",
    dbrx = "dbrx",
    deepseek = "deepseek",
    deepseek2 = "deepseek2",
    deepseek2_ocr = "deepseek2-ocr",
    deepseek32 = "deepseek32",
    deepseek4 = "deepseek4",
    deepseek41 = "deepseek41",
    dots1 = "dots1",
    dots3note = "dots3note",
    ernie4_5_moe = "ernie4_5-moe",
    exaone_moe = "exaone-moe",
    flint = "flint",
    gemma4 = "gemma4",
    glm_dsa = "glm-dsa",
    glm4moe = "glm4moe",
    glm5_next = "glm5-next",
    gpt_oss = "gpt-oss",
    granite = "granite",
    granite_swa = "granite_swa",
    granitehybrid = "granitehybrid",
    granitemoe = "granitemoe",
    grok = "grok",
    hunyuan_moe = "hunyuan-moe",
    hy_v3 = "hy_v3",
    hy_v4 = "hy_v4",
    jamba = "jamba",
    k2_horizon = "k2-horizon",
    kimi_k3 = "kimi-k3",
    kimi_linear = "kimi-linear",
    kolibri1 = "kolibri1",
    laguna = "laguna",
    lfm2moe = "lfm2moe",
    llada_moe = "llada-moe",
    llama = "llama",
    llama_embed = "llama-embed",
    llama4 = "llama4",
    maion_coder = "maion-coder",
    maple = "maple",
    mellum = "mellum",
    mimo2 = "mimo2",
    minicpm = "minicpm",
    minimax_01 = "minimax-01",
    minimax_m2 = "minimax-m2",
    minimax_m3 = "minimax-m3",
    mistral_large4 = "mistral-large4",
    mistral3 = "mistral3",
    mistral4 = "mistral4",
    muse_spark = "muse-spark",
    nemotron_h = "nemotron_h",
    nemotron_h_moe = "nemotron_h_moe",
    nomic_bert_moe = "nomic-bert-moe",
    olmoe = "olmoe",
    phimoe = "phimoe",
    qwen2moe = "qwen2moe",
    qwen35moe = "qwen35moe",
    qwen3moe = "qwen3moe",
    qwen3next = "qwen3next",
    qwen3vlmoe = "qwen3vlmoe",
    qwen4exp = "qwen4exp",
    rnd1 = "rnd1",
    smallthinker = "smallthinker",
    step35 = "step35",
}

/// Rows without a test of their own name.
const CUT_ONLY: &[&str] = &["dflash"];
const REFUSED: &[&str] = &["grovemoe", "refact"];
#[rustfmt::skip]
const DENSE: &[&str] = &[
    "apertus", "arcee", "arwkv7", "baichuan", "bert", "bitnet", "bloom", "chameleon", "chatglm",
    "codeshell", "cogvlm", "cohere2", "command-r", "deci", "dream", "ernie4_5", "eurobert", "exaone",
    "exaone4", "falcon", "falcon-h1", "gemma", "gemma-embedding", "gemma-embedding2", "gemma2", "gemma3",
    "gemma3n", "glm4", "gpt2", "gptneox", "hunyuan-dense", "hunyuan_vl", "internlm2", "jais", "jais2",
    "jina-bert-v2", "jina-bert-v3", "lfm2", "lfm3", "limite", "llada", "maincoder", "mamba", "mamba2",
    "minicpm3", "modern-bert", "mpt", "muse-glimmer", "nanbeige", "nemotron", "neo-bert", "nomic-bert",
    "olmo", "olmo2", "openelm", "orion", "paddleocr", "pangu-embedded", "phi2", "phi3", "plamo", "plamo2",
    "plamo3", "plm", "pockettts", "qwen", "qwen2", "qwen2vl", "qwen3", "qwen35", "qwen3tts", "qwen3vl",
    "rwkv6", "rwkv6qwen2", "rwkv7", "seed_oss", "sensenova_u1", "smollm3", "spark2_5", "stablelm",
    "starcoder", "starcoder2", "t5", "t5encoder", "talkie", "xverse",
];
#[rustfmt::skip]
const DENSE_BY_CODE: &[&str] = &[
    "(unknown)", "clef", "clip", "eagle3", "gemma4-assistant", "gptj", "graniteswitch", "hrm_text",
    "vllm-decision2", "wavtokenizer-dec",
];

/// The table.
pub fn rows() -> BTreeMap<&'static str, Row> {
    let mut rows = BTreeMap::new();
    for (names, row) in [
        (PROVEN, Row::Proven),
        (CUT_ONLY, Row::CutOnly),
        (REFUSED, Row::Refused),
        (DENSE, Row::Dense),
        (DENSE_BY_CODE, Row::DenseByCode),
    ] {
        for name in names {
            assert_eq!(rows.insert(*name, row), None, "{name} has two rows");
        }
    }
    rows
}

#[test]
fn every_architecture_of_llama_cpp_has_a_row() {
    let rows = rows();
    let linked: Vec<String> =
        Backend::start().expect("llama.cpp").architectures().into_iter().map(|(name, _)| name).collect();
    let missing: Vec<_> = linked.iter().filter(|name| !rows.contains_key(name.as_str())).collect();
    assert!(missing.is_empty(), "architectures without a row: {missing:?}");
    let gone: Vec<_> = rows.keys().filter(|name| !linked.iter().any(|other| other == *name)).collect();
    assert!(gone.is_empty(), "rows without an architecture: {gone:?}");
}

#[test]
fn product_table_knows_the_same_architectures() {
    for (name, row) in rows() {
        let arch = arch::architecture(name);
        let dense = matches!(row, Row::Dense | Row::DenseByCode);
        assert_eq!(arch.is_none(), dense, "{name} is {row:?}");
        let Some(arch) = arch else { continue };
        assert_eq!(arch.refuse.is_some(), row == Row::Refused, "{name} is {row:?}");
        let proven = matches!(arch.mask, arch::Mask::Proven(_));
        assert_eq!(proven, row == Row::Proven, "{name} is {row:?}, its mask {:?}", arch.mask);
    }
    for arch in arch::architectures() {
        assert!(rows().contains_key(arch.architecture), "{}", arch.architecture);
    }
}

/// A model of a dense architecture is asked for with 8 experts, and has none.
#[test]
fn dense_architectures_have_no_experts() {
    let faults: Vec<String> =
        DENSE.iter().filter_map(|name| isolated::run("child", &format!("dense {name}"), &[]).err()).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn architectures_dense_by_code_cannot_be_made_by_a_recipe() {
    for name in DENSE_BY_CODE {
        let made = isolated::run("child", &format!("dense {name}"), &[]);
        assert!(made.is_err(), "{name} can be made: its row is Dense");
    }
}
