// What tests of the torch folders need in addition to torch_pch.h, compiled once: every operator,
// and GoogleTest.
#pragma once
#include "torch_pch.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
