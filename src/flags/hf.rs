//! `-hf USER/REPO[:QUANT]`: a model that was downloaded, by the name of its repository.

use super::downloads::Download;
use std::ffi::OsString;

/// Replaces `--hf-repo USER/REPO[:QUANT]` (and `--hf-file FILE`) by `--model PATH`. Where the command takes a model and none
/// is named, the variables of the same meaning hold.
///
/// # Errors
/// Says what is not there, and what fetches it.
pub fn find_models(arguments: Vec<OsString>, takes_model: bool) -> Result<Vec<OsString>, String> {
    let mut kept = Vec::with_capacity(arguments.len());
    let (mut repository, mut file) = (None, None);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let text = argument.to_str().unwrap_or_default();
        let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let slot = match name {
            "--hf-repo" => &mut repository,
            "--hf-file" => &mut file,
            "--" => {
                kept.push(argument);
                kept.extend(arguments);
                break;
            }
            _ => {
                kept.push(argument);
                continue;
            }
        };
        let value = value.map(str::to_owned).or_else(|| arguments.next()?.into_string().ok());
        *slot = Some(value.ok_or_else(|| format!("{name} takes a value"))?);
    }
    if takes_model && repository.is_none() && !names_model(&kept) {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        repository = variable("LLAMA_ARG_HF_REPO");
        file = file.or_else(|| repository.as_ref().and(variable("LLAMA_ARG_HF_FILE")));
    }
    let Some(repository) = repository.map(|name| Download::parse(&name)).transpose()? else {
        return match file {
            Some(_) => Err("--hf-file names a file of the repository of --hf-repo".to_owned()),
            None => Ok(kept),
        };
    };
    let model = repository.find(file.as_deref())?;
    // In front of what was given behind the command, which is the first argument that is no flag.
    let command = kept.iter().skip(1).position(|argument| !argument.to_string_lossy().starts_with('-'));
    let at = command.map_or(kept.len(), |at| at + 2);
    kept.splice(at..at, ["--model".into(), model.into_os_string()]);
    Ok(kept)
}

/// Whether arguments or environment name a model, or ask for help alone.
fn names_model(arguments: &[OsString]) -> bool {
    let names = |argument: &OsString| {
        let text = argument.to_string_lossy();
        let long = text.starts_with("--");
        text == "--model"
            || text.starts_with("--model=")
            || text == "--help"
            || text == "-h"
            || !long && text.starts_with("-m")
    };
    std::env::var_os("LLAMA_ARG_MODEL").is_some()
        || arguments.iter().take_while(|argument| *argument != "--").any(names)
}
