// Estimates the time that a run loses to failures and checkpoints: J. T. Daly, "A higher order
// estimate of the optimum checkpoint interval for restart dumps" (2006). Failures are random, on
// average one every `mtbf` seconds. All times are in seconds.
#pragma once

namespace trident {

// Returns the training time between two saves that minimises the lost time, where a save delays
// training by `cost`: eq. 37. Its first term is Young's sqrt(2 cost mtbf) of 1974.
double best_save_interval(double cost, double mtbf);

// Returns the fraction of the run's time that is spent on training that no failure undoes, with a
// save after each `interval` of training. After a failure, training resumes from the last save
// `restart` seconds later: eq. 20.
double goodput(double interval, double cost, double restart, double mtbf);

}  // namespace trident
