//! The Frond server: connections, sessions, commands, cursors and settings.
