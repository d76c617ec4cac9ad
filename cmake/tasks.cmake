# What a run can learn (strata/task): which tasks a program has, and what it needs for them.
#
# STRATA_TASKS: the tasks of the program `strata`. A task may be left out where it has stand-ins,
# strata/task/no_TASK and strata/cli/no_TASK; the folders and the system libraries that it alone
# needs are left out with it. The tests need every task.
set(STRATA_ALL_TASKS text recommender graph)
set(STRATA_TASKS "${STRATA_ALL_TASKS}" CACHE STRING "Tasks of the program: text, and of recommender and graph those wanted")
# Folders of strata/ that only this task needs (tools/check_layers.py reads this line).
set(STRATA_FOLDERS_OF_recommender tabular rowserver embed)
set(STRATA_FOLDERS_OF_graph exported images)

# The server of models (strata serve) may be left out, too: it needs Boost's headers, gRPC and protobuf, as do the servers
# of rows.
option(STRATA_SERVER "The verb serve: models over HTTP and gRPC" ON)
if(STRATA_TESTS AND NOT STRATA_SERVER)
  message(FATAL_ERROR "STRATA_SERVER: the tests need the server; set STRATA_TESTS=OFF")
endif()

foreach(task ${STRATA_TASKS})
  if(NOT task IN_LIST STRATA_ALL_TASKS)
    message(FATAL_ERROR "STRATA_TASKS: no task '${task}'; there are ${STRATA_ALL_TASKS}")
  endif()
endforeach()
foreach(task ${STRATA_ALL_TASKS})
  if(NOT task IN_LIST STRATA_TASKS)
    if(NOT EXISTS "${CMAKE_SOURCE_DIR}/strata/task/no_${task}")
      message(FATAL_ERROR "STRATA_TASKS: every program needs task '${task}'")
    elseif(STRATA_TESTS)
      message(FATAL_ERROR "STRATA_TASKS: the tests need task '${task}'; set STRATA_TESTS=OFF")
    endif()
  endif()
endforeach()

# strata_link_tasks(TARGET [TASK...]): gives a program the list of tasks, with these tasks (by
# default STRATA_TASKS) and the stand-ins of the others.
function(strata_link_tasks target)
  set(tasks ${ARGN})
  if(NOT tasks)
    set(tasks ${STRATA_TASKS})
  endif()
  target_link_libraries(${target} PRIVATE strata_task_kinds)
  foreach(task ${STRATA_ALL_TASKS})
    if(task IN_LIST tasks)
      target_link_libraries(${target} PRIVATE strata_task_${task})
    else()
      target_link_libraries(${target} PRIVATE strata_task_no_${task})
    endif()
  endforeach()
endfunction()
