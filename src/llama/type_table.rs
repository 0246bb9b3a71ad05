//! The table of tensor types in `gguf` against that of the linked ggml.

use super::backend::text;
use super::ffi;
use crate::gguf::TensorType;

#[test]
fn tensor_types_match_the_linked_llama_cpp() {
    for id in 0..ffi::GGML_TYPE_COUNT {
        // SAFETY: the id is below the count; ggml's functions read a static table.
        let (name, block_elements, block_bytes) =
            unsafe { (text(ffi::ggml_type_name(id)), ffi::ggml_blck_size(id), ffi::ggml_type_size(id)) };
        match TensorType::from_id(id) {
            Ok(ours) => {
                assert_eq!(ours.name().to_lowercase(), name.to_lowercase(), "type {id}");
                assert_eq!(ours.block_elements(), block_elements as u64, "elements a block of {name}");
                assert_eq!(ours.block_bytes(), block_bytes as u64, "bytes a block of {name}");
            }
            // ggml keeps a row without a size for types that are retired.
            Err(refused) => assert_eq!(block_bytes, 0, "type {id}, {name}: {refused}"),
        }
    }
    assert!(TensorType::all().all(|ours| ours.id() < ffi::GGML_TYPE_COUNT));
}
