"""`rlinf ui`: the report's pages over run directories, brought up to date while runs go on."""
