//! The state of a run of a filter over a document.

use crate::bounds;
use frond_error::Error;

/// The state of a run besides its result.
#[derive(Default)]
pub(crate) struct State {
    /// The first condition that could not be evaluated.
    pub(crate) error: Option<Box<Error>>,
    /// Whether the operation has to end: then nothing more is compared.
    is_interrupted: bool,
}

impl State {
    #[cold]
    pub(crate) fn fail(&mut self, error: Error) {
        self.error.get_or_insert_with(|| Box::new(error));
    }

    /// Counts work. False if the operation has to end; then the result of the run is its error.
    #[inline]
    pub(crate) fn goes_on(&mut self, units: usize) -> bool {
        match bounds::work(units) {
            Ok(()) => !self.is_interrupted,
            Err(error) => {
                self.interrupt(error);
                false
            }
        }
    }

    /// Ends the run with an error.
    #[cold]
    pub(crate) fn interrupt(&mut self, error: Error) {
        self.is_interrupted = true;
        self.fail(error);
    }

    /// Whether any of the conditions holds.
    pub(super) fn any<T>(
        &mut self,
        all: &[T],
        mut holds: impl FnMut(&T, &mut State) -> bool,
    ) -> bool {
        all.iter()
            .any(|one| self.is_interrupted || holds(one, self))
    }
}
