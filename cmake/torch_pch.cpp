// The owner of the precompiled header; cmake/folder.cmake says who reuses it.
