// The owner of the precompiled header of tests; cmake/folder.cmake says which programs reuse it.
