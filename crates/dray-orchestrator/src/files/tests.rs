//! What a turn does with files, over a bus inside the process, a real store, and services that answer as told.
