-- Make one due job ready, or fail it if a constraint refuses its row. Returns why it failed; null: it did not.
create or replace function stepwell.promote_one(
  _id uuid,
  out queue text,
  out rank smallint,
  out run_at timestamptz,
  out why text
)
language plpgsql volatile
as $$
declare
  _durable boolean;
  _keyed boolean;
begin
  if exists (select from stepwell.job j where j.id = _id and j.state::text = 'waiting' and j.unsure is not null) then
    perform stepwell.look_again(array[_id]);
    return;
  end if;
  update stepwell.job j set state = 'ready' where j.id = _id
  returning j.queue, j.rank, j.run_at, j.durable, j.admission is not null
  into queue, rank, run_at, _durable, _keyed;
  if _keyed then
    perform stepwell.notify_blocked(stepwell.queue_again(array[_id]));
  end if;
  if _durable then
    perform stepwell.end_waits(array[_id]);
  end if;
-- Other errors, such as a lock, a full disk or a cancelled statement, do not count against the job and are raised.
exception when data_exception or integrity_constraint_violation or program_limit_exceeded then
  queue := null;
  why := 'it is due and cannot be made ready: ' || sqlerrm;
  perform stepwell.fail_broken(_id, why);
end
$$;
