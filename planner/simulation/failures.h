// What failures and checkpoints leave of a run's time: J. T. Daly, "A higher order estimate of the
// optimum checkpoint interval for restart dumps" (2006). Failures come by chance, every `mtbf`
// seconds on average.
#pragma once

namespace trident {

// Seconds of training between two saves that lose the least time, where a save costs `cost` seconds
// of training: eq. 37, which Young's sqrt(2 cost mtbf) of 1974 begins.
double best_save_interval(double cost, double mtbf);

// The part of the time that is training that stands, with a save after each `interval` seconds of
// it; after a failure `restart` seconds pass before training goes on from the last save: eq. 20.
double goodput(double interval, double cost, double restart, double mtbf);

}  // namespace trident
