//! The sessions of those who use the page.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use frond_auth::{NoRandomness, random_bytes};
use parking_lot::Mutex;
use tokio::time::Instant;

/// A session that is not used for this time ends.
pub const IDLE_MAX: Duration = Duration::from_secs(30 * 60);

/// Every session ends after this time.
pub const AGE_MAX: Duration = Duration::from_secs(12 * 60 * 60);

/// Sessions at the same time. With one more, the one that was not used for the longest time ends.
pub const SESSIONS_MAX: usize = 256;

/// Connections that a session keeps for its next commands.
const LINKS_MAX: usize = 4;

/// A connection that is not used for this time is closed.
const LINK_IDLE_MAX: Duration = Duration::from_secs(30);

/// 128 unpredictable bits, in hexadecimal.
pub fn secret() -> Result<String, NoRandomness> {
    Ok(frond_bson::hex(&random_bytes::<16>()?))
}

/// A user at a page, or all users where there are no logins.
pub struct Session<U, L> {
    /// The user; none where there are no logins.
    pub user: Option<U>,
    /// The name of the user, and the database that has it.
    pub name: Option<(String, String)>,
    /// The token that requests carry in a header.
    pub token: String,
    links: Mutex<Vec<(L, Instant)>>,
}

impl<U, L> Session<U, L> {
    /// A new session.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn new(
        user: Option<U>,
        name: Option<(String, String)>,
    ) -> Result<Session<U, L>, NoRandomness> {
        Ok(Session {
            user,
            name,
            token: secret()?,
            links: Mutex::default(),
        })
    }

    /// Takes a connection that is open.
    pub fn take_link(&self) -> Option<L> {
        self.links.lock().pop().map(|(link, _)| link)
    }

    /// Keeps a connection for the next command.
    pub fn keep_link(&self, link: L) {
        let mut links = self.links.lock();
        if links.len() < LINKS_MAX {
            links.push((link, Instant::now()));
        }
    }

    /// Closes connections that were not used for a while.
    pub fn close_idle_links(&self) {
        let now = Instant::now();
        let mut links = self.links.lock();
        links.retain(|(_, used)| now.duration_since(*used) < LINK_IDLE_MAX);
    }
}

struct Entry<U, L> {
    session: Arc<Session<U, L>>,
    began: Instant,
    used: Instant,
}

impl<U, L> Entry<U, L> {
    fn has_ended(&self, now: Instant) -> bool {
        now.duration_since(self.used) >= IDLE_MAX || now.duration_since(self.began) >= AGE_MAX
    }
}

/// The sessions of users who have logged in, by the secret in their cookie.
pub struct Sessions<U, L>(Mutex<HashMap<String, Entry<U, L>>>);

impl<U, L> Default for Sessions<U, L> {
    fn default() -> Self {
        Sessions(Mutex::default())
    }
}

impl<U, L> Sessions<U, L> {
    /// Begins a session, and returns the secret of its cookie.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn begin(
        &self,
        session: Session<U, L>,
    ) -> Result<(String, Arc<Session<U, L>>), NoRandomness> {
        let id = secret()?;
        let now = Instant::now();
        let session = Arc::new(session);
        let entry = Entry {
            session: session.clone(),
            began: now,
            used: now,
        };
        let mut all = self.0.lock();
        all.retain(|_, entry| !entry.has_ended(now));
        if all.len() >= SESSIONS_MAX {
            let oldest = all.iter().min_by_key(|(_, entry)| entry.used);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                all.remove(&oldest);
            }
        }
        all.insert(id.clone(), entry);
        Ok((id, session))
    }

    /// The session of a cookie. It counts as used.
    pub fn find(&self, id: &str) -> Option<Arc<Session<U, L>>> {
        let now = Instant::now();
        let mut all = self.0.lock();
        let entry = all.get_mut(id)?;
        if entry.has_ended(now) {
            all.remove(id);
            return None;
        }
        entry.used = now;
        Some(entry.session.clone())
    }

    /// Ends the session of a cookie.
    pub fn end(&self, id: &str) {
        self.0.lock().remove(id);
    }

    /// Ends the sessions whose time is over, and closes the connections that the others do not use.
    pub fn expire(&self) {
        let now = Instant::now();
        let mut all = self.0.lock();
        all.retain(|_, entry| !entry.has_ended(now));
        for entry in all.values() {
            entry.session.close_idle_links();
        }
    }

    /// Moves the last use of all sessions back in time.
    #[cfg(test)]
    pub fn shift(&self, by: Duration) {
        for entry in self.0.lock().values_mut() {
            entry.used = entry.used.checked_sub(by).unwrap_or(entry.used);
        }
    }

    /// The number of sessions.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn session() -> Session<(), u8> {
        Session::new(None, None).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_end_when_idle_or_old() {
        let all = Sessions::default();
        let (idle, _) = all.begin(session()).unwrap();
        let (used, _) = all.begin(session()).unwrap();
        assert!(all.find("").is_none() && all.find("nonsense").is_none());
        let step = IDLE_MAX / 2;
        let mut age = Duration::ZERO;
        while age + step < AGE_MAX {
            tokio::time::advance(step).await;
            age += step;
            assert!(all.find(&used).is_some(), "{age:?}");
        }
        assert!(all.find(&idle).is_none());
        tokio::time::advance(step).await;
        assert!(all.find(&used).is_none(), "every session ends");
        assert_eq!(all.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_not_too_many_sessions() {
        let all = Sessions::default();
        let (first, _) = all.begin(session()).unwrap();
        let (second, _) = all.begin(session()).unwrap();
        for _ in 2..SESSIONS_MAX {
            tokio::time::advance(Duration::from_millis(1)).await;
            all.begin(session()).unwrap();
        }
        assert!(all.find(&first).is_some());
        all.begin(session()).unwrap();
        assert_eq!(all.len(), SESSIONS_MAX);
        assert!(all.find(&second).is_none(), "the least used one ends");
        assert!(all.find(&first).is_some());
        all.end(&first);
        assert!(all.find(&first).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_are_closed() {
        let all = Sessions::default();
        let (_, session) = all.begin(session()).unwrap();
        for link in 0..10 {
            session.keep_link(link);
        }
        assert_eq!(session.take_link(), Some(LINKS_MAX as u8 - 1));
        tokio::time::advance(LINK_IDLE_MAX).await;
        session.keep_link(7);
        all.expire();
        assert_eq!(session.take_link(), Some(7));
        assert_eq!(session.take_link(), None);
    }
}
