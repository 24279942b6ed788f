//! Which function answers which request.

use std::pin::Pin;

use hyper::header::{ALLOW, HeaderValue};
use hyper::{Method, StatusCode};

use super::call::Call;
use super::reply::{Reply, text};

type Answer = Pin<Box<dyn Future<Output = Reply> + Send>>;

struct Route {
    method: Method,
    path: &'static str,
    handler: Box<dyn Fn(Call) -> Answer + Send + Sync>,
}

/// The routes of a server. A route is one line: `router.get("/path", handler)`.
#[derive(Default)]
pub struct Router {
    routes: Vec<Route>,
}

impl Router {
    #[must_use]
    pub fn new() -> Router {
        Router::default()
    }

    /// Answers GET (and HEAD) of a path.
    #[must_use]
    pub fn get<F, A>(self, path: &'static str, handler: F) -> Router
    where
        F: Fn(Call) -> A + Send + Sync + 'static,
        A: Future<Output = Reply> + Send + 'static,
    {
        self.route(Method::GET, path, handler)
    }

    /// Answers POST of a path.
    #[must_use]
    pub fn post<F, A>(self, path: &'static str, handler: F) -> Router
    where
        F: Fn(Call) -> A + Send + Sync + 'static,
        A: Future<Output = Reply> + Send + 'static,
    {
        self.route(Method::POST, path, handler)
    }

    fn route<F, A>(mut self, method: Method, path: &'static str, handler: F) -> Router
    where
        F: Fn(Call) -> A + Send + Sync + 'static,
        A: Future<Output = Reply> + Send + 'static,
    {
        self.routes.push(Route {
            method,
            path,
            handler: Box::new(move |call| Box::pin(handler(call))),
        });
        self
    }

    pub async fn answer(&self, call: Call) -> Reply {
        let method = match *call.method() {
            // The connection leaves out the body.
            Method::HEAD => Method::GET,
            ref other => other.clone(),
        };
        let mut allowed: Vec<&str> = Vec::new();
        for route in self.routes.iter().filter(|one| one.path == call.path()) {
            if route.method == method {
                return (route.handler)(call).await;
            }
            allowed.push(route.method.as_str());
        }
        if allowed.is_empty() {
            return text(StatusCode::NOT_FOUND, "There is nothing at this path.\n");
        }
        let mut reply = text(
            StatusCode::METHOD_NOT_ALLOWED,
            "This path does not take this method.\n",
        );
        if let Ok(value) = HeaderValue::from_str(&allowed.join(", ")) {
            reply.headers_mut().insert(ALLOW, value);
        }
        reply
    }
}
