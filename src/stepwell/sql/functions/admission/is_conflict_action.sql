-- Whether an enqueue can do this if its unique key is taken. Null stands for ignore.
create or replace function stepwell.is_conflict_action(_action text) returns boolean
language sql immutable
as $$ select coalesce(_action in ('ignore', 'raise', 'replace', 'reschedule', 'throttle'), true) $$;
