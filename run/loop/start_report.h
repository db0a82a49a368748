// The lines with which a run begins: the checkpoint from which it resumes, the parts that it does
// not load, and the differences that may change its numbers. World rank 0 prints them; not
// collective.
#pragma once

#include <map>
#include <string>

#include "engine/stepper.h"
#include "run/loop/run_reporter.h"
#include "run/loop/training_inputs.h"

namespace trident {

// `made_by`: RunSaver::made_by(). `reading_seconds`: the time that loading the checkpoint took.
void report_start(const TrainingInputs&, Stepper&,
                  const std::map<std::string, std::string>& made_by, double reading_seconds,
                  const RunReporter&);

}  // namespace trident
