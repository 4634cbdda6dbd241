-- As stepwell.delete_steps: see stepwell.notify_done.
create or replace function stepwell.bury_steps(
  _gone uuid[], _kept uuid[], _expires_ats timestamptz[], _retriable uuid[]
)
returns void
language sql volatile
as $$ select stepwell.delete_steps(_gone, _kept, _expires_ats, _retriable) $$;
