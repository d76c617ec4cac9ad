// The source of the precompiled header, which cmake/folder.cmake shares among targets.
