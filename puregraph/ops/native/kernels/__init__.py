"""Other operations in native code: loop nests, copies, gathers, attention, recurrent cells."""
