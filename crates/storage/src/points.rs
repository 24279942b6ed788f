//! Points in long operations at which a test can act, to show what others can do meanwhile.

use std::cell::RefCell;

type Act = Box<dyn FnMut(&'static str)>;

thread_local! {
    static ACT: RefCell<Option<Act>> = const { RefCell::new(None) };
}

/// For tests: calls `act` whenever an operation of this thread reaches a point, with the point's name, until the result is
/// dropped. `act` is not called for operations of its own.
#[doc(hidden)]
#[must_use]
pub fn at_points(act: impl FnMut(&'static str) + 'static) -> ActsAtPoints {
    ACT.set(Some(Box::new(act)));
    ActsAtPoints(())
}

/// Ends what [`at_points`] began.
#[doc(hidden)]
pub struct ActsAtPoints(());

impl Drop for ActsAtPoints {
    fn drop(&mut self) {
        ACT.set(None);
    }
}

/// The operation of this thread has reached a point.
pub fn point(name: &'static str) {
    let Some(mut act) = ACT.take() else { return };
    act(name);
    ACT.with_borrow_mut(|next| {
        next.get_or_insert(act);
    });
}
