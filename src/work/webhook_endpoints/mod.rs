//! The verbs of `/webhook_endpoints`.

mod create;
mod update;

pub use create::CreateWebhookEndpoint;
pub use update::UpdateWebhookEndpoint;
