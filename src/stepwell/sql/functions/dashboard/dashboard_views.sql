-- The saved views of the list of jobs, by name. save_view bounds their number.
create or replace function stepwell.dashboard_views() returns json
language plpgsql stable security definer
as $$
begin
  return json_build_object(
    'views', coalesce(
      (
        select json_agg(
          json_build_object('name', v.name, 'filters', v.filters, 'saved_by', v.saved_by, 'saved_at', v.saved_at)
          order by v.name
        )
        from stepwell.saved_view v
      ),
      '[]'
    )
  );
end
$$;
