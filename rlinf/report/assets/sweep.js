function sweepPages() {}
