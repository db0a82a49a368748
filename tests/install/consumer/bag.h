// A model that Trident doesn't have: GPT-2 with a bag of words in place of attention. A layer mixes
// positions by their running mean and is otherwise an MLP: y = x + mlp(norm(m)), m[i] = mean of x[0
// … i] within the sample.
#pragma once

#include <memory>

#include "models/architecture.h"

std::shared_ptr<const trident::Architecture> make_bag();
