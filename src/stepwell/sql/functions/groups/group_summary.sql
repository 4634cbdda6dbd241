-- The summary of a group that has ended, as its callback gets it; null: it has not ended, or there is none.
create or replace function stepwell.group_summary(_id uuid) returns json
language plpgsql stable
as $$
begin
  return (
    select json_build_object(
      'id', _id, 'total', p.total, 'succeeded', p.succeeded, 'failed', p.failed, 'cancelled', p.cancelled,
      'failures', p.failures
    )
    from stepwell.group_progress(_id) p
    where p.ended
  );
end
$$;
