//! The metadata from which llama.cpp makes a tiny model of each architecture.

use moeslice::arch::{self, GateSource, GatingFunction};
use moeslice::gguf::{Metadata, OwnedValue, TensorInfo, TensorType, Value, ValueType};

/// Tokens of the vocabulary of every tiny model.
pub const N_VOCAB: u64 = 256;

/// What a tiny model is made from.
#[derive(Clone)]
pub struct Recipe {
    /// `general.architecture`.
    pub architecture: String,
    /// All of its metadata.
    pub metadata: Metadata,
    /// Tensors that are not F32.
    pub typed: Vec<TensorInfo>,
    /// Parts of the names of tensors that the file leaves out.
    pub without: Vec<&'static str>,
    /// `{arch}.expert_count`.
    pub n_expert: u32,
    /// `{arch}.block_count`.
    pub n_layer: u32,
    /// Another seed gives other numbers.
    pub seed: u64,
}

impl Recipe {
    /// The plain model of an architecture: 3 layers of 8 experts, of which a token goes to 3.
    pub fn of(architecture: &str) -> Recipe {
        let mut recipe = Recipe {
            architecture: architecture.to_owned(),
            metadata: Metadata::new(),
            typed: Vec::new(),
            without: Vec::new(),
            n_expert: 8,
            n_layer: 3,
            seed: 0,
        };
        recipe.metadata.set("general.architecture", architecture);
        recipe.general();
        recipe.particular();
        recipe
    }

    /// Sets `{arch}.{key}`.
    pub fn set(&mut self, key: &str, value: impl Into<OwnedValue>) -> &mut Self {
        self.metadata.set(&format!("{}.{key}", self.architecture), value);
        self
    }

    /// Removes `{arch}.{key}`.
    pub fn unset(&mut self, key: &str) -> &mut Self {
        self.metadata.remove(&format!("{}.{key}", self.architecture));
        self
    }

    /// Another number of experts, and of those that a token goes to.
    pub fn experts(&mut self, count: u32, used: u32) -> &mut Self {
        self.n_expert = count;
        self.set("expert_count", count).set("expert_used_count", used)
    }

    /// What most architectures read, each in the form that most of them want.
    fn general(&mut self) {
        let arch = arch::architecture(&self.architecture);
        let gate = match arch.map(|arch| arch.selection) {
            Some(GateSource::Always(gate)) => gate,
            Some(GateSource::Key(default)) => default.unwrap_or(GatingFunction::Sigmoid),
            None => GatingFunction::Softmax,
        };
        let gate: u32 =
            (1..=4).find(|&key| GatingFunction::from_key(key) == Some(gate)).expect("a key") as u32;
        self.set("vocab_size", N_VOCAB as u32)
            .set("context_length", 512_u32)
            .set("embedding_length", 128_u32)
            .set("block_count", 3_u32)
            .set("feed_forward_length", 192_u32)
            .set("attention.head_count", 4_u32)
            .set("attention.head_count_kv", 2_u32)
            .set("attention.key_length", 32_u32)
            .set("attention.value_length", 32_u32)
            .set("attention.layer_norm_epsilon", 1e-5_f32)
            .set("attention.layer_norm_rms_epsilon", 1e-5_f32)
            .set("attention.sliding_window", 8_u32)
            .set("rope.dimension_count", 32_u32)
            .set("rope.freq_base_swa", 5000.0_f32)
            .set("rope.dimension_sections", vec![8_i32, 4, 4, 0])
            .experts(8, 3)
            .set("expert_feed_forward_length", 64_u32)
            .set("expert_shared_count", 1_u32)
            .set("expert_shared_feed_forward_length", 64_u32)
            .set("expert_gating_func", gate)
            .set("expert_weights_norm", true)
            .set("expert_weights_scale", 1.5_f32)
            .set("leading_dense_block_count", 1_u32);
        let tokens: Vec<String> = (0..N_VOCAB).map(|id| format!("t{id}")).collect();
        self.metadata.set("tokenizer.ggml.model", "test");
        self.metadata.set("tokenizer.ggml.tokens", tokens);
    }

    /// What the architecture needs besides, or otherwise.
    fn particular(&mut self) {
        match self.architecture.as_str() {
            "maple" => {
                self.windowed().set("swiglu_clamp_exp", vec![10.0_f32; 3]);
            }
            "beam" | "mimo2" | "granite_swa" | "kolibri1" | "step35" => {
                self.windowed();
            }
            "muse-spark" => {
                self.windowed()
                    .set("post_norm_epsilon", 1e-5_f32)
                    .set("moe_latent_size", 64_u32)
                    .set("final_logit_softcapping", 30.0_f32);
            }
            "flint" => {
                self.windowed().set("attention.rope_pattern", flags(&[true, false, true]));
            }
            "maion-coder" => {
                self.windowed().set("interleave_moe_layer_step", 1_u32).set("moe_latent_size", 64_u32);
            }
            "gemma4" => {
                self.windowed()
                    .set("attention.key_length_swa", 32_u32)
                    .set("attention.value_length_swa", 32_u32)
                    .set("embedding_length_per_layer_input", 0_u32);
            }
            "llama4" => {
                // Every fourth layer has no rope; llama.cpp wants one.
                self.layers(4).set("interleave_moe_layer_step", 1_u32);
            }
            "dots1" | "olmoe" | "deepseek2-ocr" => {
                self.set("attention.head_count_kv", 4_u32);
            }
            "ernie4_5-moe" => {
                self.set("interleave_moe_layer_step", 1_u32);
            }
            "dbrx" => {
                self.set("attention.clamp_kqv", 8.0_f32);
            }
            "lfm2moe" => {
                self.alternating().set("shortconv.l_cache", 3_u32);
            }
            "jamba" | "granitehybrid" => {
                self.alternating().state_space().set("ssm.inner_size", 256_u32);
            }
            "nemotron_h" | "nemotron_h_moe" => {
                self.layers(5)
                    .state_space()
                    .set("attention.head_count_kv", vec![0_u32, 0, 2, 0, 0])
                    .set("feed_forward_length", vec![0_u32, 192, 0, 192, 192]);
            }
            "qwen3next" | "qwen35moe" => {
                self.state_space().set("full_attention_interval", 3_u32);
            }
            "qwen4exp" => {
                self.state_space()
                    .indexer()
                    .set("full_attention_interval", 3_u32)
                    .set("hyper_connection.count", 2_u32)
                    .set("hyper_connection.low_rank", 8_u32);
            }
            "minimax-01" => {
                self.set("full_attention_interval", 3_u32).set("residual_scale", 1.0_f32);
            }
            "minimax-m3" => {
                self.indexer()
                    .set("attention.indexer.block_size", 4_u32)
                    .set("attention.indexer.local_blocks", 1_u32);
            }
            "deepseek2" | "mistral4" => {
                self.latent();
            }
            "deepseek32" | "glm-dsa" | "mistral-large4" => {
                self.latent().indexer();
            }
            "dots3note" => {
                self.latent()
                    .indexer()
                    .windowed()
                    .set("attention.kv_lora_rank_swa", 48_u32)
                    .set("attention.key_length_swa", 64_u32)
                    .set("attention.key_length_mla_swa", 32_u32)
                    .set("attention.value_length_mla_swa", 32_u32)
                    .set("attention.indexer.types", flags(&[true, true, true]));
            }
            "hy_v4" => {
                self.latent()
                    .indexer()
                    .set("attention.indexer.types", flags(&[true, true, true]))
                    .set("hyper_connection.count", 2_u32)
                    .set("hyper_connection.epsilon", 1e-6_f32)
                    .set("hyper_connection.magnitude", 1.0_f32);
            }
            "kimi-linear" | "bailingmoe3" => {
                self.latent().linear();
            }
            "kimi-k3" => {
                self.latent()
                    .linear()
                    .set("attn_res.block_size", 2_u32)
                    .set("activation.situ_beta", 1.0_f32)
                    .set("activation.situ_linear_beta", 1.0_f32);
            }
            "glm5-next" => {
                self.latent()
                    .linear()
                    .indexer()
                    .set("rope.dimension_count", 0_u32)
                    .set("attention.key_length", 32_u32)
                    .set("attention.indexer.kpool", 2_u32)
                    .set("hyper_connection.count", 4_u32)
                    .set("hyper_connection.sinkhorn_iterations", 3_u32)
                    .set("hyper_connection.epsilon", 1e-6_f32);
            }
            "deepseek4" => {
                self.compressed(&[0, 4, 4]).hash_layers(1);
            }
            "deepseek41" => {
                self.compressed(&[2, 2, 2])
                    .set("hash_layer_count", 0_u32)
                    .set("attention.kv_source_layers", vec![0_u32])
                    .set("attention.indexer.source_layers", vec![0_u32]);
            }
            "dflash" => {
                self.compressed(&[0, 0, 0]).set("target_layers", vec![0_i32, 1]).set("block_size", 4_u32);
            }
            "nomic-bert-moe" => {
                self.layers(4).set("moe_every_n_layers", 2_u32);
                self.metadata.set("tokenizer.ggml.token_type_count", 2_u32);
            }
            "grovemoe" => {
                self.set("expert_group_scale", 0.5_f32)
                    .set("experts_per_group", 2_u32)
                    .set("expert_chunk_feed_forward_length", 32_u32);
            }
            "spark2_5" | "lfm3" => {
                self.windowed();
            }
            _ => {}
        }
        if arch::architecture(&self.architecture).is_none() {
            self.anything();
        }
        if matches!(
            self.architecture.as_str(),
            "cohere2moe" | "granite" | "granitemoe" | "granite_swa" | "muse-spark"
        ) {
            self.set("logit_scale", 0.5_f32);
        }
    }

    /// Keys that one or another architecture without experts asks for.
    fn anything(&mut self) {
        self.state_space()
            .set("use_parallel_residual", true)
            .set("rope.freq_base_spatial", 10000.0_f32)
            .set("attention.q_lora_rank", 64_u32)
            .set("attention.kv_lora_rank", 32_u32)
            .set("attention.relative_buckets_count", 8_u32)
            .set("attention.scale", 1.0_f32)
            .set("embedding_length_per_layer_input", 32_u32)
            .set("logit_scale", 0.5_f32)
            .set("wkv.head_size", 32_u32)
            .set("time_mix_extra_dim", 32_u32)
            .set("time_decay_extra_dim", 32_u32)
            .set("attention.decay_lora_rank", 32_u32)
            .set("attention.iclr_lora_rank", 32_u32)
            .set("attention.value_residual_mix_lora_rank", 32_u32)
            .set("attention.gate_lora_rank", 32_u32)
            .set("features_length", 64_u32)
            .set("shortconv.l_cache", 3_u32)
            .set("hrm.layers_per_stack", 1_u32)
            .set("hrm.h_cycles", 1_u32)
            .set("hrm.l_cycles", 1_u32);
        self.metadata.set("tokenizer.ggml.token_type_count", 2_u32);
        if self.architecture == "mamba" {
            self.set("ssm.inner_size", 256_u32);
        }
        for key in ["alpha_n", "alpha_p", "beta", "eps"] {
            self.metadata.set(&format!("xielu.{key}"), vec![1.0_f32; 3]);
        }
    }

    /// One block of multi-token prediction behind the others; per-layer arrays get an entry for it, that of the last
    /// layer with attention.
    pub fn mtp(&mut self) -> &mut Self {
        let before = u64::from(self.n_layer);
        let attends = match self.metadata.get(&format!("{}.attention.head_count_kv", self.architecture)) {
            Some(Value::Array(kv)) => {
                kv.to_u64s().expect("counts").iter().rposition(|&n| n > 0).expect("attention")
            }
            _ => self.n_layer as usize - 1,
        };
        let arrays: Vec<(String, OwnedValue)> = self
            .metadata
            .iter()
            .filter(|(key, _)| {
                key.starts_with(&format!("{}.", self.architecture)) && !key.contains("rope.dim")
            })
            .filter_map(|(key, value)| match value {
                Value::Array(array) if array.len() == before => Some((key.to_owned(), value.into())),
                _ => None,
            })
            .collect();
        for (key, value) in arrays {
            let OwnedValue::Array(ty, mut elements) = value else { continue };
            // The block of deepseek4 has no compressed attention.
            let like = if key.ends_with("compress_ratios") { 0 } else { attends };
            elements.push(elements[like].clone());
            self.metadata.set(&key, OwnedValue::Array(ty, elements));
        }
        let n_layer = self.n_layer + 1;
        self.layers(n_layer).set("nextn_predict_layers", 1_u32)
    }

    pub fn layers(&mut self, n_layer: u32) -> &mut Self {
        self.n_layer = n_layer;
        self.set("block_count", n_layer)
    }

    /// Sliding windows in some layers.
    fn windowed(&mut self) -> &mut Self {
        self.set("attention.sliding_window_pattern", flags(&[true, false, true]))
    }

    /// Layers without attention, marked by a head count of 0.
    fn alternating(&mut self) -> &mut Self {
        self.set("attention.head_count_kv", vec![0_u32, 2, 0])
    }

    fn state_space(&mut self) -> &mut Self {
        self.set("ssm.conv_kernel", 4_u32)
            .set("ssm.inner_size", 128_u32)
            .set("ssm.state_size", 32_u32)
            .set("ssm.time_step_rank", 4_u32)
            .set("ssm.group_count", 2_u32)
    }

    /// Keys and values of low rank.
    fn latent(&mut self) -> &mut Self {
        self.set("attention.q_lora_rank", 64_u32)
            .set("attention.kv_lora_rank", 32_u32)
            .set("attention.head_count_kv", 1_u32)
            .set("attention.key_length", 48_u32)
            .set("attention.value_length", 32_u32)
            .set("attention.key_length_mla", 32_u32)
            .set("attention.value_length_mla", 32_u32)
            .set("rope.dimension_count", 16_u32)
            .set("rope.dimension_sections", vec![4_i32, 2, 2, 0])
    }

    /// Layers of linear attention beside latent ones.
    fn linear(&mut self) -> &mut Self {
        self.set("attention.head_count_kv", vec![0_u32, 1, 0])
            .set("ssm.conv_kernel", 4_u32)
            .set("kda.head_dim", 32_u32)
            .set("kda.safe_gate", true)
            .set("kda.gate_lower_bound", -5.0_f32)
    }

    /// Sparse attention.
    fn indexer(&mut self) -> &mut Self {
        self.set("attention.indexer.head_count", 2_u32)
            .set("attention.indexer.key_length", 64_u32)
            .set("attention.indexer.top_k", 8_u32)
    }

    /// The attention of deepseek4 and what came after it.
    fn compressed(&mut self, ratios: &[u32]) -> &mut Self {
        let clamp = vec![10.0_f32; ratios.len()];
        self.indexer()
            .set("attention.q_lora_rank", 64_u32)
            .set("attention.head_count_kv", 1_u32)
            .set("attention.output_group_count", 2_u32)
            .set("attention.output_lora_rank", 32_u32)
            .set("attention.compress_rope_freq_base", 10000.0_f32)
            .set("attention.compress_ratios", ratios.to_vec())
            .set("rope.dimension_count", 16_u32)
            .set("hyper_connection.count", 4_u32)
            .set("hyper_connection.sinkhorn_iterations", 3_u32)
            .set("hyper_connection.epsilon", 1e-6_f32)
            .set("swiglu_clamp_exp", clamp.clone())
            .set("swiglu_clamp_shexp", clamp)
    }

    /// Layers that look their experts up by token.
    pub fn hash_layers(&mut self, count: u32) -> &mut Self {
        self.set("hash_layer_count", count);
        self.typed = (0..count)
            .map(|layer| {
                let name = format!("blk.{layer}.ffn_gate_tid2eid.weight");
                TensorInfo::new(name, vec![3, N_VOCAB], TensorType::I32).expect("a table")
            })
            .collect();
        self
    }
}

fn flags(flags: &[bool]) -> OwnedValue {
    OwnedValue::Array(ValueType::Bool, flags.iter().map(|&flag| OwnedValue::Bool(flag)).collect())
}
