//! dray-platform-discord.
