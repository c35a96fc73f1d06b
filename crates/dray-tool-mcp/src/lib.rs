//! Servers of the Model Context Protocol as tools (quickapps 27, 28).
