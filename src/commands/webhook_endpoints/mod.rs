//! The verbs of `/webhook_endpoints`.

mod create;

pub use create::CreateWebhookEndpoint;
