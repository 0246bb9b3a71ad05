//! How `eval` fails.

use crate::console::failure::Failure;
use crate::evaluate::EvalError;

/// How a measurement that failed ends the command.
pub fn eval_failure(error: EvalError) -> Failure {
    match error {
        error if error.is_interrupt() => Failure::Interrupted,
        error @ (EvalError::NoPass(_)
        | EvalError::TooShort { .. }
        | EvalError::NothingToScore { .. }
        | EvalError::Mask(_)) => Failure::input(error),
        error => Failure::running(error),
    }
}
